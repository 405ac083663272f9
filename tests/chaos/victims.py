"""Who is killed: the processes of a fleet, found from inside any of them.

Each part of a fleet leads a session of its own, whose leader's process id stands in a file of the part's name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.faults import Effect

WORKERS = ("red", "blue")
_PARTS = {Effect.KILL_COMMITTER: "committer", Effect.KILL_PRODUCER: "producer", Effect.KILL_BEAT: "beat"}


def kill(effect: Effect, leaders: Path) -> None:
    """Kill whom an effect names; of workers the one that this process belongs to, else the first.

    Args:
        effect: One that kills.
        leaders: Folder of the files with process ids.
    """
    worker = _leader(leaders, _own_part(leaders))
    if effect is Effect.KILL_JVM:
        _kill(process for process in _session(worker) if "java" in process.name())
    elif effect is Effect.KILL_CHILD:
        _kill(process for process in _session(worker) if process.ppid() == worker)
    elif effect is Effect.KILL_WORKER:
        _kill(_session(worker))
    else:
        _kill(_session(_leader(leaders, _PARTS[effect])))


def _own_part(leaders: Path) -> str:
    own = os.getsid(0)
    return next((name for name in WORKERS if _leader(leaders, name) == own), WORKERS[0])


def _leader(leaders: Path, name: str) -> int:
    try:
        return int((leaders / name).read_text())
    except (OSError, ValueError):
        return -1  # nobody's session


def _session(leader: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(process.pid) == leader:
                yield process


def _kill(processes: Iterator[psutil.Process]) -> None:
    """This process last: it is the one that kills the others."""
    pids = [process.pid for process in processes]
    for pid in sorted(pids, key=lambda pid: pid == os.getpid()):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
