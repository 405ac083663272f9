"""What a tree of processes takes, seen from outside."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.usage import UsageMonitor, memory, tree

#: Its child burns CPU, writes, holds memory, and is waited for.
_PARENT = """
import subprocess, sys
for _ in sys.stdin:
    subprocess.run([sys.executable, "-c", sys.argv[1]], check=True)
    print("done", flush=True)
"""
_CHILD = """
import pathlib, time
held = b"x" * 200_000_000
until = time.process_time() + 1.0
while time.process_time() < until:
    pass
pathlib.Path({path!r}).write_bytes(b"y" * 5_000_000)
pathlib.Path({path!r}).read_bytes()
"""


def test_a_child_that_has_ended_counts(tmp_path: Path) -> None:
    child = _CHILD.format(path=str(tmp_path / "written"))
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        with UsageMonitor(parent.pid) as monitor:
            parent.stdin.write("go\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == "done\n"
            taken = monitor.usage()
        assert 1.0 <= taken.cpu_seconds < 5
        assert taken.seconds >= 1.0
        assert 200e6 < taken.peak_bytes < 400e6
        assert 5e6 <= taken.written_bytes < 8e6
        assert taken.read_bytes >= 5e6
        with UsageMonitor(parent.pid) as monitor:
            time.sleep(0.3)
            idle = monitor.usage()
        assert idle.cpu_seconds < 0.2
        assert idle.peak_bytes < 100e6
        assert idle.written_bytes < 1e6


def test_the_moment_of_the_end_can_be_given() -> None:
    with UsageMonitor(1) as monitor:
        ended = time.perf_counter() + 5
        assert monitor.usage(ended).seconds == pytest.approx(5, abs=0.5)


def test_a_process_that_ended_takes_nothing() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert tree(gone.pid) == []
    assert memory(gone.pid) == 0
    with UsageMonitor(gone.pid) as monitor:
        assert monitor.usage().peak_bytes == 0
