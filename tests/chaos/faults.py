"""Faults that wait for their moment: armed by whoever breaks a fleet, sprung by the process that gets there first.

A fault is an empty file whose name says everything. To spring it is to rename it, so that one process does at most, and
what was sprung can be counted afterwards whoever has died over it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Self


class Step(StrEnum):
    """Moments in the way of a job at which something may happen."""

    PLAN_WRITTEN = "plan written"
    UNIT_TAKEN = "unit taken"
    FILE_HALF_WRITTEN = "file half written"
    FILE_WRITTEN = "file written"
    RECORD_STAGED = "record staged"
    COMMIT_VALIDATED = "commit validated"
    MANIFESTS_WRITTEN = "manifests written"
    BEFORE_SWAP = "before the swap"
    AFTER_SWAP = "after the swap"
    BEFORE_REPORT = "before the report"
    #: What happens all the time, besides: files are read and written, records of jobs are, and some are deleted.
    FILE_READ = "file read"
    RECORD_READ = "record read"
    RECORD_WRITTEN = "record written"
    MANIFEST_READ = "manifest read"
    DELETED = "file deleted"
    TABLE_LOADED = "table loaded"


#: The moments that have a name of their own in the way of a job, in their order.
WAY: Final = tuple(Step)[:10]


class Effect(StrEnum):
    """What may happen."""

    KILL_CHILD = "the worker's child is killed"
    KILL_WORKER = "the worker's machine is lost"
    KILL_JVM = "the JVM is killed"
    KILL_COMMITTER = "the committer's machine is lost"
    KILL_PRODUCER = "the producer is killed"
    KILL_BEAT = "the clock is killed"
    IO_ERROR = "I/O error"
    DISK_FULL = "disk full"
    DENIED = "permission denied"
    TRUNCATED = "write cut short"
    VANISHED = "file not there"
    HESITANT = "half a second late"
    SLOW = "two seconds late"
    VERY_SLOW = "a minute late"
    REFUSED = "catalog refuses"
    NO_ANSWER_BEFORE = "no answer, nothing done"
    NO_ANSWER_AFTER = "no answer, and it was done"
    BEATEN = "somebody else was faster"


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is to happen once.

    Args:
        step: When.
        effect: What.
        skip: How often the moment passes before.
        where: Part of the path, or the table, that it happens to; of any if empty. It holds no slash.
    """

    step: Step
    effect: Effect
    skip: int = 0
    where: str = ""

    def file(self, number: int) -> str:
        """The name of its file."""
        return f"{number:06d}~{self.step.name}~{self.effect.name}~{self.skip}~{self.where}"

    @classmethod
    def of(cls, file: str) -> tuple[Self, int]:
        """The fault that a name tells, and its number."""
        number, step, effect, skip, where = file.split("~")
        return cls(Step[step], Effect[effect], int(skip), where), int(number)


class Arsenal:
    """All faults of one fleet.

    Args:
        folder: Known to all of its processes.
    """

    def __init__(self, folder: Path) -> None:
        self._armed, self._sprung = folder / "armed", folder / "sprung"
        self._numbers = itertools.count()
        for part in (self._armed, self._sprung):
            part.mkdir(parents=True, exist_ok=True)

    def arm(self, *faults: Fault) -> None:
        """Have faults wait."""
        for fault in faults:
            (self._armed / fault.file(next(self._numbers))).touch()

    def disarm(self) -> list[Fault]:
        """Take back all that nobody has sprung."""
        waiting = []
        for path in self._armed.iterdir():
            with suppress(FileNotFoundError):
                path.unlink()
                waiting.append(Fault.of(path.name)[0])
        return waiting

    def spring(self, step: Step, what: str) -> Iterator[Fault]:
        """The faults that happen now, in the process that asks.

        Args:
            step: Where it is.
            what: The path or the table that it is about.
        """
        for path in sorted(self._armed.iterdir()):
            fault, number = Fault.of(path.name)
            if fault.step is not step or fault.where not in what:
                continue
            with suppress(FileNotFoundError):  # another process was as quick
                if fault.skip:
                    path.rename(self._armed / replace(fault, skip=fault.skip - 1).file(number))
                else:
                    path.rename(self._sprung / path.name)
                    yield fault

    def sprung(self) -> Counter[tuple[Step, Effect]]:
        """What has happened so far, and how often."""
        found = (Fault.of(path.name)[0] for path in self._sprung.iterdir())
        return Counter((fault.step, fault.effect) for fault in found)
