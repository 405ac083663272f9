"""The environment of Spark's peers: a Python with the Spark of ``requirements.txt``, and the jars of ``pom.xml``.

It is made once, under the data folder, and made anew when one of the two files has changed.

    python -m bench.peers.environment FOLDER
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from workers.runtime.session import NoJava, find_java

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
#: Makes an environment of half a gigabyte; a registry that does not answer must not hold the bench for ever.
_LIMIT = 1800


class Absent(Exception):
    """The peers cannot run here; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the peers' Python, jars and Java are."""

    python: Path
    jars: Path
    java: Path

    @property
    def variables(self) -> dict[str, str]:
        """What a peer's process has in its environment; of other installations of Spark it hears nothing."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
        return {**inherited, "JAVA_HOME": str(self.java), "PYTHONPATH": str(_ROOT), "PYTHONSAFEPATH": "1"}


def find(folder: Path) -> Environment:
    """The environment that was made in a folder.

    Raises:
        Absent: it was not made, or of other versions than are asked for now.
    """
    made = Environment(folder / "venv/bin/python", folder / "jars", _java())
    stamp = folder / "made"
    if not stamp.exists():
        raise Absent("not fetched yet: run `make bench` with --peers")
    if stamp.read_text() != _wanted():
        raise Absent("fetched in other versions: run `make bench` with --peers")
    return made


def make(folder: Path) -> Environment:
    """The environment in a folder, which is made where it is missing.

    Raises:
        Absent: pip or Maven is missing, or could not fetch what is named.
    """
    try:
        return find(folder)
    except Absent:
        java = _java()
    maven = shutil.which("mvn")
    if maven is None:
        raise Absent("no Maven, which fetches Iceberg's jars: install maven and a JDK")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _run([sys.executable, "-m", "venv", str(folder / "venv")], "Python could not make an environment")
    pip = [str(folder / "venv/bin/python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    named = str(_HERE / "requirements.txt")
    # Spark comes as source and is packed here, with the setuptools that is pinned and not one fetched apart.
    _run([*pip, "-c", named, "setuptools", "wheel"], "pip could not fetch what packs Spark")
    _run([*pip, "--no-build-isolation", "-r", named], "pip could not fetch Spark")
    fetch = ["dependency:copy-dependencies", "-DexcludeTransitive=true", f"-DoutputDirectory={folder / 'jars'}"]
    _run([maven, "-B", "-q", "-f", str(_HERE / "pom.xml"), *fetch], "Maven could not fetch Iceberg's jars", java)
    (folder / "made").write_text(_wanted())
    return find(folder)


def _wanted() -> str:
    """Tells whether an environment is of the files as they are now, and of this machine's Python."""
    named = b"".join((_HERE / name).read_bytes() for name in ("requirements.txt", "pom.xml"))
    return hashlib.sha256(named + sys.version.encode()).hexdigest()


def _java() -> Path:
    try:
        return find_java()
    except NoJava as error:
        raise Absent(str(error)) from error


def _run(command: list[str], failure: str, java: Path | None = None) -> None:
    variables = {**os.environ, **({"JAVA_HOME": str(java)} if java else {})}
    try:
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LIMIT
        )
    except subprocess.TimeoutExpired as error:
        raise Absent(f"{failure} in {_LIMIT} s") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
        raise Absent(f"{failure}: {lines[0] if lines else done.stderr.strip()[-300:] or done.returncode}")


if __name__ == "__main__":
    try:
        print(make(Path(sys.argv[1]).absolute()))
    except Absent as absent:
        sys.exit(f"bench: {absent}")
