"""The process of a contestant: it reads requests and writes answers, each a line of JSON.

It prints ``{"ready": {"versions": {…}}}`` once it is ready. For each line on its standard input it answers
``{"done": {…facts…}}`` or ``{"error": "…"}``, and it ends with its input. Its other output goes to its log.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bench.usage import Usage, UsageMonitor, tree

#: Seconds for a session to start, and for a process to end by itself.
_START = 180.0
_END = 20.0
#: Where modules are found: contestants are started there.
ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """A contestant did not do what was requested; the text says why."""


class TimedOut(Failed):
    """It exceeded its time limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contestant did, by its own account, and the resources it used."""

    facts: Mapping[str, Any]
    usage: Usage


class Contestant:
    """A process that answers requests; its use of resources is measured meanwhile.

    Args:
        cores: The number of cores that it may run on.
        log: File that its other output is appended to.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], *, cores: int, log: Path) -> None:
        self._log = log
        self._lines: queue.Queue[tuple[float, str]] = queue.Queue()
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_from = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        # Before it starts threads, which inherit this.
        os.sched_setaffinity(self._process.pid, sorted(os.sched_getaffinity(0))[:cores])
        threading.Thread(target=self._read_answers, daemon=True).start()
        try:
            ready, _ = self._receive(_START)
        except Failed:
            self.kill()
            raise
        #: Of what it is made of, by name.
        self.versions: dict[str, str] = ready.get("ready", {}).get("versions", {})

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def ask(self, request: Mapping[str, Any], limit: float) -> Answer:
        """Send a request and wait for the answer.

        Raises:
            TimedOut: It has not answered within the limit in seconds, and was killed.
            Failed: It answered with an error, or died.
        """
        assert self._process.stdin is not None
        with UsageMonitor(self.pid) as monitor:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            try:
                answer, when = self._receive(limit)
            except Failed:
                self.kill()
                raise
            usage = monitor.usage(when)
        if "error" in answer:
            raise Failed(f"{answer['error']}{self._out_of_memory()}")
        return Answer(answer["done"], usage)

    def close(self) -> None:
        """Have it end by itself, and kill it if it does not."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        self.kill()

    def kill(self) -> None:
        """Kill it and its descendants."""
        for pid in tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        self._process.wait()

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put((time.perf_counter(), line))
        self._lines.put((time.perf_counter(), ""))

    def _receive(self, limit: float) -> tuple[dict[str, Any], float]:
        """The next answer, and when it came."""
        try:
            when, line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise TimedOut(f"did not finish in {limit:,.0f} s") from None
        if line:
            return json.loads(line), when
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        raise Failed(f"died with exit status {self._process.poll()}{self._cause_of_death()}")

    def _cause_of_death(self) -> str:
        return self._out_of_memory() or _last_line([line for line in self._logged_lines() if line.strip()])

    def _out_of_memory(self) -> str:
        """Return what its JVM logged about memory, if anything: the error in the answer may name a consequence only."""
        return _last_line([line for line in self._logged_lines() if "OutOfMemory" in line])

    def _logged_lines(self) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            return log.read()[-100_000:].decode(errors="replace").splitlines()


def _last_line(lines: list[str]) -> str:
    return f": {lines[-1].strip()[:300]}" if lines else ""
