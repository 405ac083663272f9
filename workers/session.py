"""The Spark session of this process: made when it is first needed, one at a time, sized by the budget."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from workers.machine import Budget

log = logging.getLogger(__name__)

#: Spark 4 needs this version of Java or a newer one.
JAVA = 17

_current: tuple[SparkSession, Budget, int] | None = None


class NoJava(Exception):
    """There is no Java that Spark can run on."""


@cache
def find_java() -> Path:
    """The home of a Java that is new enough: JAVA_HOME, the one on the path, or one in the usual places.

    Raises:
        NoJava: the text says what to install.
    """
    homes = [Path(os.environ["JAVA_HOME"])] if os.environ.get("JAVA_HOME") else []
    if found := shutil.which("java"):
        homes.append(Path(found).resolve().parent.parent)
    homes += sorted(Path("/usr/lib/jvm").glob("*"), reverse=True) if Path("/usr/lib/jvm").exists() else []
    for home in homes:
        if (home / "bin" / "java").exists() and _version(home) >= JAVA:
            return home
    raise NoJava(
        f"Spark needs Java {JAVA} or newer and none was found: install one (Debian: apt-get install "
        f"openjdk-{JAVA}-jre-headless) or set JAVA_HOME."
    )


def session(budget: Budget, spill: Path | None = None) -> SparkSession:
    """The session of this process; a new one if there is none, or its JVM has died, or the budget is another.

    Args:
        budget: Cores and heap.
        spill: Where Spark shuffles and spills; the system's temporary directory by default.
    """
    global _current
    if _current is not None:
        spark, made_for, pid = _current
        if pid == os.getpid() and made_for == budget and _alive(spark):
            return spark
        close()
    _current = (_make(budget, spill or Path(tempfile.gettempdir())), budget, os.getpid())
    return _current[0]


def close() -> None:
    """Stop the session, if there is one."""
    global _current
    if _current is None:
        return
    spark, _, pid = _current
    _current = None
    if pid == os.getpid():
        try:
            spark.stop()
        except (Py4JError, OSError):
            log.debug("the JVM was gone already", exc_info=True)


def _make(budget: Budget, spill: Path) -> SparkSession:
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.appName("icefleet")
        .master(f"local[{budget.cores}]")
        .config("spark.driver.memory", f"{budget.heap_bytes >> 20}m")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(budget.shuffle_tasks))
        .config("spark.sql.adaptive.enabled", "true")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.local.dir", str(spill))
        .config("spark.log.level", "ERROR")
    )
    with _stderr_in(spill / f"icefleet-spark-{os.getpid()}.log") as log_file:
        log.info("Spark writes its own log to %s", log_file)
        return builder.getOrCreate()


@contextmanager
def _stderr_in(path: Path) -> Iterator[Path]:
    """Start a JVM in this block and it writes its errors to a file: its chatter would tear up bars and tables."""
    sys.stderr.flush()
    saved = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield path
    except Exception:
        os.dup2(saved, 2)
        sys.stderr.write(path.read_text(errors="replace"))
        raise
    finally:
        os.dup2(saved, 2)
        os.close(saved)
    atexit.register(path.unlink, missing_ok=True)


def _alive(spark: SparkSession) -> bool:
    try:
        return bool(spark.sparkContext.defaultParallelism)  # asks the JVM, which refuses when its context is stopped
    except (Py4JError, OSError, AttributeError):
        return False


def _version(home: Path) -> int:
    try:
        text = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0
