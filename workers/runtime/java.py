"""Finds the Java that Spark runs on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

#: Spark 4 needs this version of Java or a newer one.
JAVA: Final = 17

_USUAL_PLACES: Final = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/opt/jdk", "/Library/Java/JavaVirtualMachines")


class NoJava(Exception):
    """There is no Java that Spark can run on."""


@cache
def find_java() -> Path:
    """Return the home of a Java that is new enough: JAVA_HOME, the one on the path, or one in the usual places.

    Raises:
        NoJava: the text says what to install.
    """
    for home in _homes():
        if (home / "bin" / "java").exists() and _version(home) >= JAVA:
            return home
    raise NoJava(
        f"Spark needs Java {JAVA} or newer and none was found: install one (Debian: apt-get install "
        f"openjdk-{JAVA}-jre-headless) or set JAVA_HOME."
    )


def _homes() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    for place in map(Path, _USUAL_PLACES):
        for home in [place, *sorted(place.glob("*"), reverse=True)]:
            yield home
            yield home / "Contents" / "Home"


def _version(home: Path) -> int:
    try:
        text = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0
