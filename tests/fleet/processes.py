"""Processes of this machine that make up a fleet: each with a log of its own, and all of them gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


@dataclass
class Processes:
    """Starts, kills and stops processes by name. Each leads a session of its own, by which its descendants are found.

    Args:
        root: Folder for logs and whatever the processes keep.
    """

    root: Path
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Start a process; its output goes to its log, after that of an earlier one of the same name."""
        with self.log(name).open("ab") as log:
            self.running[name] = subprocess.Popen(
                command,
                cwd=self.root,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def terminate(self, name: str) -> None:
        """Ask a process to stop, as service managers do, and go on."""
        self.running[name].send_signal(signal.SIGTERM)

    def ended(self, name: str, within: float = 60) -> int:
        """Wait for the end of a process and return its exit status; whatever it left behind is killed."""
        process = self.running.pop(name)
        try:
            return process.wait(within)
        finally:
            _kill_session(process)

    def kill(self, name: str) -> None:
        """Kill a process and its descendants at once, as the loss of a machine does."""
        _kill_session(self.running.pop(name))

    def kill_all(self) -> None:
        """Leave nothing behind."""
        for name in reversed(list(self.running)):
            self.kill(name)

    @contextmanager
    def halted(self, *names: str) -> Iterator[None]:
        """Processes and their descendants that do nothing for a while, and go on where they were."""
        pids = [pid for name in names for pid in self._pids(name)]
        _signal(pids, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(pids, signal.SIGCONT)

    def wait_for(self, what: str, probe: Callable[[], T | None], within: float = 150, every: float = 0.1) -> T:
        """The first true answer of a probe; fails with all logs when there is none in time."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if answer := probe():
                return answer
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended with {process.returncode}, no {what}\n{self.logs()}"
            time.sleep(every)
        raise AssertionError(f"no {what} within {within:.0f} s\n{self.logs()}")

    def _pids(self, name: str) -> list[int]:
        process = self.running[name]
        return [process.pid, *(child.pid for child in descendants(process.pid))]

    def log(self, name: str) -> Path:
        """Where a process's output goes."""
        folder = self.root / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.log"

    def logs(self, characters: int = 4000) -> str:
        """The end of what every process said."""
        return "\n".join(f"--- {log.name}\n{log.read_text()[-characters:]}" for log in sorted(self.root.glob("logs/*")))


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, number)


def descendants(pid: int) -> Iterator[psutil.Process]:
    """The live descendants of a process that belong to its session."""
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            if process.pid != pid and os.getsid(process.pid) == pid:
                yield process


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    left = list(descendants(process.pid))
    with suppress(ProcessLookupError):
        process.kill()
    process.wait()
    for child in left:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(left, timeout=10)
