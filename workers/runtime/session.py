"""The Spark session of this process: started when it is first needed, one at a time, sized by the budget.

PySpark is imported with the first session: a process that never needs one does not wait for it.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from workers.runtime.machine import ALLOCATOR_ENVIRONMENT, Budget, use_system_allocator
from workers.runtime.scratch import process_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: Spark 4 needs this version of Java or a newer one.
JAVA: Final = 17

_JAVA_FOLDERS: Final = ("/usr/lib/jvm", "/usr/java", "/opt/java", "/opt/jdk", "/Library/Java/JavaVirtualMachines")
_LOG: Final = "spark.log"
#: Few rows reach the JVM: the first compiler is enough, and a unit is over before the second has paid (a third less
#: processor time for the first unit, no more for the largest). The heap begins small, or it would fill up before it
#: is collected for the first time.
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms64m")
#: This package, and the folder that it is in.
_PACKAGE: Final = __name__.partition(".")[0]
_ROOT: Final = Path(__file__).resolve().parents[2]
_LOGGING: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


class NoJava(Exception):
    """There is no Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class _Current:
    spark: SparkSession
    budget: Budget
    pid: int
    folder: Path


_current: _Current | None = None
#: Held while the session is started or closed: a unit that comes while the session is warmed waits for it.
_lock = threading.RLock()
#: Folders of sessions that exist or are being started.
_folders: set[Path] = set()
#: Seconds for the JVM and its processes to end by themselves.
_STOP_SECONDS: Final = 5.0


def session(budget: Budget, spill: Path | None = None) -> SparkSession:
    """Return the session of this process; a new one if there is none, its JVM or folder is lost, or the budget changes.

    Spark shuffles and spills below ``spill`` (the system's temporary directory by default). The JVM starts quietly: its
    output and that of Python workers goes to a file there.

    Raises:
        NoJava: there is no Java that Spark can run on.
    """
    global _current
    with _lock:
        if _current is not None:
            if _current.pid == os.getpid() and _current.budget == budget and _alive(_current):
                return _current.spark
            close()
        folder = process_folder(spill)
        _folders.add(folder)
        use_system_allocator()
        try:
            _current = _Current(_make(budget, folder), budget, os.getpid(), folder)
            # A thread of PySpark reads from the JVM, and prints its traceback when that dies.
            _current.spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        except BaseException:
            _discard(folder)
            raise
        return _current.spark


def running(budget: Budget) -> bool:
    """Return whether this process has a session of this budget; one that is being started does not count."""
    current = _current
    return current is not None and current.pid == os.getpid() and current.budget == budget


def warm(budget: Budget, spill: Path | None = None) -> None:
    """Start the session and its Python workers: all that the first unit would wait for."""
    with _lock:
        spark = session(budget, spill)
        spark.range(0, budget.cores, 1, budget.cores).mapInArrow(lambda batches: batches, "id long").collect()


def close() -> None:
    """Stop the session and its JVM, if there is one."""
    global _current
    with _lock:
        if _current is None:
            return
        ended, _current = _current, None
        if ended.pid != os.getpid():  # of the process that this one was forked from
            return
        try:
            _stop(ended.spark)
        finally:
            _discard(ended.folder)


def end() -> None:
    """End the JVM at once, also one that is being started: this process is about to end without ``atexit``."""
    # Other threads may be talking to the JVM. py4j logs their broken connections with the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    started = psutil.Process().children(recursive=True)
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for process in filter(_is_running, started):
            with suppress(psutil.Error):
                stop(process)
        deadline = time.monotonic() + _STOP_SECONDS
        while any(map(_is_running, started)) and time.monotonic() < deadline:
            time.sleep(0.02)
    for folder in list(_folders):
        _discard(folder)


atexit.register(close)


def _after_fork() -> None:
    """Forget the session of the parent process, and the lock that one of its threads may hold."""
    global _current, _lock
    _current, _lock = None, threading.RLock()
    _folders.clear()
    if (pyspark := sys.modules.get("pyspark")) is not None:  # it would share the parent's connection to its JVM
        pyspark.SparkContext._gateway = pyspark.SparkContext._jvm = None
        pyspark.SparkContext._active_spark_context = None


os.register_at_fork(after_in_child=_after_fork)


def _stop(spark: SparkSession) -> None:
    from py4j.protocol import Py4JError
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        spark.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(30)
    except (Py4JError, OSError):
        log.debug("the JVM had ended already", exc_info=True)
        spark.sparkContext.stop()  # once more, for what is left of it on this side
    finally:
        # PySpark keeps the gateway of a JVM that has ended, and would ask it for the next session.
        SparkContext._gateway = None
        SparkContext._jvm = None


def _discard(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    _folders.discard(folder)


def _is_running(process: psutil.Process) -> bool:
    """Return whether a process runs; a zombie waits for its parent and does not count."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _make(budget: Budget, folder: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    # These log a line for each connection and each task.
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.WARNING)
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging_file = folder / "log4j2.properties"
    logging_file.write_text(_LOGGING)
    conf = SparkConf(loadDefaults=False).setAll(list(_settings(budget, folder, logging_file).items()))
    log.info("Spark writes its own log to %s", folder / _LOG)
    with open(folder / _LOG, "ab") as output:
        try:
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})  # type: ignore[no-untyped-call]
        except OSError:  # such as a full disk
            raise
        except Exception as error:
            raise RuntimeError(f"Spark did not start: {_last_words(folder / _LOG)}") from error
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _last_words(log: Path) -> str:
    """Return in one line why a JVM ended, without the warnings that every start prints."""
    lines = (line.strip() for line in log.read_text(errors="replace").splitlines())
    text = " ".join(line for line in lines if not line.startswith(("WARNING:", "Picked up ", "at ")))
    return text.strip()[:500] or "its JVM ended without a message; if memory ran out, give workers more memory"


def _settings(budget: Budget, folder: Path, logging_file: Path) -> dict[str, str]:
    return {
        "spark.app.name": "icefleet",
        "spark.master": f"local[{budget.cores}]",
        "spark.driver.memory": f"{budget.heap_bytes >> 20}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": " ".join((*_JVM, f"-Dlog4j2.configurationFile={logging_file.as_uri()}")),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(folder),
        # Python workers import what this process imports, and nothing else that the current folder may hold.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(_import_path()),
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.python.daemon.module": "workers.daemon",
        **{f"spark.executorEnv.{name}": value for name, value in ALLOCATOR_ENVIRONMENT.items()},
        # What tasks run may hold credentials: larger than this it would be written to a file.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(budget.shuffle_tasks),
        "spark.sql.adaptive.enabled": "true",
        # Spark assumes that what Python reads is tiny; the number of keys alone decides what is broadcast.
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }


def _import_path() -> list[str]:
    """Return the import path of this process; folders with another `workers` package come last."""
    entries = list(dict.fromkeys([*(str(Path(entry).absolute()) for entry in sys.path), str(_ROOT)]))
    return sorted(entries, key=_hides)


def _hides(entry: str) -> bool:
    """Return whether Python workers would find another package of this name in a folder."""
    spec = PathFinder.find_spec(_PACKAGE, [entry])
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve().parent != _ROOT / _PACKAGE


def _alive(current: _Current) -> bool:
    from py4j.protocol import Py4JError

    try:
        if _has_ended(current.spark.sparkContext._gateway):
            return False
        # The JVM refuses when its context is stopped, and cannot spill when systemd-tmpfiles has deleted its folder.
        return bool(current.spark.sparkContext.defaultParallelism) and any(current.folder.glob("blockmgr-*"))
    except (Py4JError, OSError, AttributeError):
        return False


def _has_ended(gateway: Any) -> bool:
    """Return whether a JVM has ended; closes its connections then, since Py4J logs a traceback of one that breaks."""
    ended = gateway.proc.poll() is not None
    if ended:
        gateway.close()
    return ended


@cache
def find_java() -> Path:
    """Return the home of a Java that is new enough: JAVA_HOME, the one on the path, or one in the usual folders.

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
    for folder in map(Path, _JAVA_FOLDERS):
        for home in [folder, *sorted(folder.glob("*"), reverse=True)]:
            yield home
            yield home / "Contents" / "Home"


def _version(home: Path) -> int:
    try:
        text = subprocess.run([home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', text)
    return int(found[1]) if found else 0
