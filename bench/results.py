"""The results of measurements: one JSON file for each workload."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import TypeAdapter

from bench.files import Files
from bench.place import Traffic


class Outcome(StrEnum):
    """How it went for a contestant in a case."""

    RAN = "ran"
    #: It cannot be had on this machine.
    ABSENT = "absent"
    #: It failed, or died.
    FAILED = "failed"
    #: It was stopped, for it took too long.
    LATE = "did not finish"


@dataclass(frozen=True, slots=True)
class Run:
    """One run that was measured. Bytes and seconds are of the whole tree of processes."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    read_bytes: int
    written_bytes: int
    #: Of files that it left, metadata too.
    added_bytes: int
    files: Files
    #: What the contestant says it did.
    facts: dict[str, Any]
    #: What is wrong with what it left; None when all rows are what they must be. A wrong run does not count.
    difference: str | None = None
    #: What it asked of an object store, if its tables are on one.
    traffic: Traffic | None = None

    @property
    def rows_equal(self) -> bool:
        """Whether it counts."""
        return self.difference is None


@dataclass(frozen=True, slots=True)
class Contest:
    """One contestant in one case."""

    name: str
    program: str
    outcome: Outcome
    #: Why it is absent, or how it failed.
    reason: str | None = None
    runs: tuple[Run, ...] = ()
    #: What it was asked to do.
    does: str = ""
    #: Of its JVM; 0 when it has none.
    heap_mb: int = 0
    #: Median seconds of the case's query after the last run; None when it was not asked or was stopped.
    query_seconds: float | None = None

    @property
    def counted(self) -> tuple[Run, ...]:
        """Runs whose rows are right, if it did all that it was asked for."""
        return tuple(run for run in self.runs if run.rows_equal) if self.outcome is Outcome.RAN else ()

    def median(self, figure: Callable[[Run], float]) -> float | None:
        """Median of a figure over the runs that count; None when none does."""
        return median(figure(run) for run in self.counted) if self.counted else None

    @property
    def seconds(self) -> float | None:
        """Median wall time."""
        return self.median(lambda run: run.seconds)

    @property
    def peak_bytes(self) -> int | None:
        """Highest memory of all runs that count."""
        return max((run.peak_bytes for run in self.counted), default=None)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case."""

    name: str
    title: str
    cores: int
    #: What write amplification is reckoned from.
    changed_bytes: int
    tables: int
    rows: int
    files: Files
    contests: tuple[Contest, ...]
    #: The query, who was asked, and the median seconds before; None when it was stopped.
    query: str | None = None
    reader: str | None = None
    query_seconds: float | None = None

    def contest(self, name: str) -> Contest | None:
        """One by its name."""
        return next((contest for contest in self.contests if contest.name == name), None)

    def of(self, program: str, does: str | None = None) -> Contest | None:
        """The first of a program, and of those that do one thing."""
        found = (contest for contest in self.contests if contest.program == program)
        return next((contest for contest in found if does in (None, contest.does)), None)


@dataclass(frozen=True, slots=True)
class Machine:
    """Where it ran."""

    cores: int
    memory_bytes: int
    cpu: str
    kernel: str


@dataclass(frozen=True, slots=True)
class WorkloadResult:
    """One workload, measured in one go."""

    workload: str
    size: str
    #: When it began, in UTC, as ISO 8601 has it.
    date: str
    seconds: float
    machine: Machine
    versions: dict[str, str]
    cases: tuple[CaseResult, ...]

    def case(self, name: str) -> CaseResult | None:
        """One by its name."""
        return next((case for case in self.cases if case.name == name), None)

    def as_dict(self) -> dict[str, Any]:
        """For programs."""
        known: dict[str, Any] = _RESULTS.dump_python(self, mode="json")
        return known

    @property
    def wrong(self) -> list[str]:
        """Runs whose rows are not what they must be, as sentences."""
        return [
            f"{self.workload}, {case.name}, {contest.name}: {run.difference}"
            for case in self.cases
            for contest in case.contests
            for run in contest.runs
            if run.difference
        ]


@dataclass(frozen=True, slots=True)
class Results:
    """All workloads that were measured, by name."""

    workloads: dict[str, WorkloadResult] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Results:
        """Those of a report's folder."""
        found = (_RESULTS.validate_json(path.read_bytes()) for path in sorted(_folder(folder).glob("*.json")))
        return cls({result.workload: result for result in found})


_RESULTS = TypeAdapter(WorkloadResult)


def save(folder: Path, result: WorkloadResult) -> Path:
    """Keep a result in a report's folder, in place of an earlier one of the workload."""
    path = _folder(folder) / f"{result.workload}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_RESULTS.dump_json(result, indent=1) + b"\n")
    return path


def _folder(report: Path) -> Path:
    return report / "results"
