"""The resources that a process and all its descendants use, as Linux counts them in /proc."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

_TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds between two samples of the memory; more if sampling is slow, so that it takes 5 % of a core at most.
_PAUSE = 0.1
_SHARE = 20


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used between two moments."""

    seconds: float
    #: Of all cores, by processes that live and by those that ended and were waited for.
    cpu_seconds: float
    #: Highest sum of proportional set sizes: memory that processes share counts once.
    peak_bytes: int
    #: Bytes asked of files, pipes and sockets, whether cached or not; reads of mapped files do not count.
    read_bytes: int
    written_bytes: int


class UsageMonitor:
    """Measures a tree of processes from ``with`` on, until :meth:`usage` is called.

    Args:
        root: The process at the root of the tree.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._peak = 0

    def __enter__(self) -> UsageMonitor:
        self._before = _totals(self._root)
        self._peak = memory(self._root)
        self._thread.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()

    def usage(self, ended: float | None = None) -> Usage:
        """Return what was used until now; ``ended`` is the end of the work, by ``time.perf_counter``."""
        seconds = (ended or time.perf_counter()) - self._started
        self._peak = max(self._peak, memory(self._root))
        cpu, read, written = (max(0, now - was) for now, was in zip(_totals(self._root), self._before, strict=True))
        return Usage(seconds, cpu / _TICKS, self._peak, read, written)

    def _sample(self) -> None:
        pause = _PAUSE
        while not self._stop.wait(pause):
            started = time.perf_counter()
            self._peak = max(self._peak, memory(self._root))
            pause = max(_PAUSE, (time.perf_counter() - started) * _SHARE)


def tree(root: int) -> list[int]:
    """A process and its descendants that live."""
    try:
        process = psutil.Process(root)
        return [root, *(child.pid for child in process.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def memory(root: int) -> int:
    """Proportional set size of a tree, in bytes."""
    return sum(_pss(pid) for pid in tree(root))


def cpu_seconds(root: int) -> float:
    """Processor time of a tree since its processes began."""
    return _totals(root)[0] / _TICKS


def _pss(pid: int) -> int:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _totals(root: int) -> tuple[int, int, int]:
    """Clock ticks, bytes read and bytes written of a tree since its processes began."""
    ticks = read = written = 0
    for pid in tree(root):
        # The name may hold spaces: fields are counted from behind it. User and system time, then those of children.
        fields = _read(pid, "stat").rpartition(")")[2].split()
        ticks += sum(int(field) for field in fields[11:15])
        counts = dict(line.split(": ") for line in _read(pid, "io").splitlines())
        read += int(counts.get("rchar", 0))
        written += int(counts.get("wchar", 0))
    return ticks, read, written


def _read(pid: int, name: str) -> str:
    """One of a process's files; empty when it has ended."""
    try:
        return (Path("/proc") / str(pid) / name).read_text()
    except OSError:
        return ""
