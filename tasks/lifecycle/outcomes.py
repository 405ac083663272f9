"""What comes next of a job: what its way through the rounds has led to."""

from __future__ import annotations

from dataclasses import dataclass

from producer.model.job import Report
from producer.model.plan import Plan
from producer.state.job_store import JobStore


@dataclass(frozen=True)
class Stage:
    """Units are to be staged; then :func:`tasks.lifecycle.rounds.advance` goes on."""

    plan: Plan
    units: tuple[int, ...]


@dataclass(frozen=True)
class Waiting:
    """Units are still being staged by somebody, or somebody is committing them."""

    plan: Plan


@dataclass(frozen=True)
class Ended:
    """The job has ended, and nothing of it is left but what was committed.

    Attributes:
        report: None when it had ended before.
        store: Keeps the conclusion until it is told to forget it, so that no report is lost; None where there is none.
    """

    report: Report | None
    store: JobStore | None = None


Step = Stage | Waiting | Ended
