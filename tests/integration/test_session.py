"""The Spark session of a process: where it runs, what it says, and that a dead one is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tasks.messaging.retry_policy import reason_of
from tests.support.enginecase import SMALL
from tests.support.repository import REPOSITORY
from workers.runtime import session
from workers.runtime.parallel import map_partitions

pytestmark = pytest.mark.spark


SCRIPT = """
import socket
import struct
import sys
import threading
from pathlib import Path

import pyarrow as pa

from tests.support.enginecase import SMALL, Case
from workers.runtime import session


def pool():
    return pa.RecordBatch.from_pydict({"pool": [pa.default_memory_pool().backend_name]})


def resets_what_it_reads():
    def reset():
        accepted, _ = server.accept()
        accepted.recv(1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        accepted.close()

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=reset, daemon=True).start()
    return socket.create_connection(server.getsockname())


folder = Path(sys.argv[1])
spill = folder / "spill"
case = Case(folder)
case.add([(n, "x", 0) for n in range(10)], 1)
case.delete((1,), [(5,)], 2)

spark = session.session(SMALL, spill)
assert session.session(SMALL, spill) is spark
pools = spark.range(1).mapInArrow(lambda batches: (pool() for _ in batches), "pool string").collect()
assert [row.pool for row in pools] == [pa.default_memory_pool().backend_name] == ["system"]
assert case.check(spark).new_positions == 1
(kept,) = spill.iterdir()
assert (kept / "spark.log").exists()

print("killed", file=sys.stderr, flush=True)
gateway = spark.sparkContext._gateway
gateway.proc.kill()
gateway.proc.wait()
connection = gateway._gateway_client.get_thread_connection()
connection.socket = resets_what_it_reads()  # as one that ends while it reads does, and Py4J logs that
connection.stream = connection.socket.makefile("rb")
(folder / case.outputs()[0]).unlink()
again = session.session(SMALL, spill)
assert again is not spark
assert case.check(again).new_positions == 1
assert [path.exists() for path in (kept, spill)] == [False, True]

print("well")
"""


def test_a_process_and_its_sessions(tmp_path: Path) -> None:
    shadow = tmp_path / "elsewhere"
    (shadow / "workers").mkdir(parents=True)
    (shadow / "workers" / "__init__.py").write_text("raise ImportError('not this one')")
    (shadow / "pyarrow.py").write_text("raise ImportError('nor this')")
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [sys.executable, "-P", tmp_path / "script.py", tmp_path / "data"],
        cwd=shadow,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("well\n", 0), done.stderr
    assert done.stderr == "killed\n"  # nothing else was said
    assert not list((tmp_path / "data" / "spill").iterdir())  # closed when the process ended


def _kill(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield from batches


def _fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    raise ValueError("the cause\nand more")
    yield from batches


def _take_too_much(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pa.allocate_buffer(1 << 45)
    yield from batches


@pytest.mark.parametrize(
    "exhaust",
    [
        pytest.param(lambda s: s.range(1).selectExpr("repeat('x', 900000000) as x").collect(), id="the JVM's heap"),
        pytest.param(lambda s: s.range(1).mapInArrow(_take_too_much, "id long").collect(), id="Arrow's memory"),
        pytest.param(lambda s: s.range(1).mapInArrow(_kill, "id long").collect(), id="a kernel that kills"),
    ],
)
def test_memory_that_runs_out_is_said_with_what_helps(exhaust: Callable[[SparkSession], object]) -> None:
    with pytest.raises(Exception, match=r".") as raised:
        exhaust(session.session(SMALL))
    assert reason_of(raised.value) == (
        "memory ran out: give workers more memory, or make units smaller (ICEFLEET_UNIT_MB)"
    )


def test_the_reason_is_the_last_line_of_a_python_worker() -> None:
    with pytest.raises(Exception, match=r".") as raised:
        session.session(SMALL).range(1).mapInArrow(_fail, "id long").collect()
    assert reason_of(raised.value) == "ValueError: the cause"


@pytest.mark.parametrize(
    ("end", "says"),
    [
        ("kill -9 $$", "its JVM ended without a message; if memory ran out, give workers more memory"),
        ("echo 'Error: no such option' >&2; exit 1", "Error: no such option"),
    ],
)
def test_a_jvm_that_ends_at_its_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: str, says: str) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"""#!/bin/sh
case "$*" in *launcher.Main*) exec {session.find_java()}/bin/java "$@";; esac
echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2
{end}
"""
    )
    java.chmod(0o755)
    session.close()
    monkeypatch.setattr(session, "find_java", lambda: tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError) as raised:
        session.session(SMALL)
    assert str(raised.value) == f"Spark did not start: {says}"


def test_no_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "old"
    (old / "bin").mkdir(parents=True)
    (old / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    (old / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(session, "_JAVA_FOLDERS", ())
    session.find_java.cache_clear()
    try:
        with pytest.raises(session.NoJava, match=r"Java 17 or newer.*apt-get install openjdk-17"):
            session.find_java()
        (old / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
        assert session.find_java() == old
    finally:
        session.find_java.cache_clear()


def test_what_tasks_are_given_is_not_written_to_a_file(tmp_path: Path) -> None:
    """It may hold credentials; by itself Spark writes more than 1 MiB to a file."""
    spark = session.session(SMALL)
    given, folder = b"not to be seen" + bytes(2 << 20), Path(spark.conf.get("spark.local.dir") or "")

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[list[str]]:
        for _ in batches:
            start = given[:14]
            yield [str(path) for path in folder.rglob("*") if path.is_file() and start in path.read_bytes()]

    assert folder.is_dir()
    assert map_partitions(spark.range(0, 1, 1, 1), tmp_path, look) == [[]]
