"""A contestant's process and the talk with it: one line of JSON asks, one answers.

It prints ``{"ready": {"versions": {…}}}`` once it can take work. For each line on its standard input it answers
``{"done": {…facts…}}`` or ``{"error": "…"}``, and it ends with its input. What it says besides goes to its log.
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

from bench.watch import Taken, Watch, tree

#: Seconds for a session to start, and for a process to end by itself.
_START = 180.0
_END = 20.0
#: Where modules are found: contestants are started there.
ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """A contestant did not do what it was asked for; the text says how that went."""


class Late(Failed):
    """It took longer than it was given."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a contestant says it did, and what that took."""

    facts: Mapping[str, Any]
    taken: Taken


class Contestant:
    """A process that works when it is asked to, and can be watched while it does.

    Args:
        cores: How many it may run on.
        log: File for what it says besides its answers; added to.
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
        threading.Thread(target=self._listen, daemon=True).start()
        try:
            ready, _ = self._hear(_START)
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
        """Have it work, and watch it.

        Raises:
            Late: it has not answered within so many seconds, and was killed.
            Failed: it says that it failed, or it died.
        """
        assert self._process.stdin is not None
        with Watch(self.pid) as watch:
            with suppress(BrokenPipeError):
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            try:
                answer, when = self._hear(limit)
            except Failed:
                self.kill()
                raise
            taken = watch.taken(when)
        if "error" in answer:
            raise Failed(f"{answer['error']}{self._out_of_memory()}")
        return Answer(answer["done"], taken)

    def close(self) -> None:
        """Let it end."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        self.kill()

    def kill(self) -> None:
        """End it and all that it started, at once."""
        for pid in tree(self.pid):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(pid).kill()
        self._process.wait()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put((time.perf_counter(), line))
        self._lines.put((time.perf_counter(), ""))

    def _hear(self, limit: float) -> tuple[dict[str, Any], float]:
        """The next answer, and when it came."""
        try:
            when, line = self._lines.get(timeout=limit)
        except queue.Empty:
            raise Late(f"did not finish in {limit:,.0f} s") from None
        if line:
            return json.loads(line), when
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END)
        raise Failed(f"died with exit status {self._process.poll()}{self._last_words()}")

    def _last_words(self) -> str:
        return self._out_of_memory() or _told([line for line in self._said() if line.strip()])

    def _out_of_memory(self) -> str:
        """What its JVM said of that, if it did: the error that is answered with may tell of what came of it only."""
        return _told([line for line in self._said() if "OutOfMemory" in line])

    def _said(self) -> list[str]:
        with self._log.open("rb") as log:
            log.seek(self._log_from)
            return log.read()[-100_000:].decode(errors="replace").splitlines()


def _told(lines: list[str]) -> str:
    return f": {lines[-1].strip()[:300]}" if lines else ""
