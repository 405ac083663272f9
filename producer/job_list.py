"""Jobs as lists show them: one line each, however much is known of them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from producer.common.errors import IcefleetError
from producer.job import Job
from producer.model.job import Status

#: Stands where nobody can tell how a job stands.
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job in a list."""

    job: str
    table: str
    catalog: str
    operation: str
    #: One of :class:`~producer.model.job.Status`, or ``unknown``.
    status: str
    #: Units that have ended, and all of them; 0 until the job is planned.
    done: int
    units: int
    #: When it was asked for, in seconds since 1970.
    started: float | None
    #: From then to its end, or to now.
    seconds: float | None
    #: Why it ended as it did, or why nothing is known of it.
    reason: str | None

    @classmethod
    def of(cls, job: Job) -> JobLine:
        """Look a job up."""
        done, units, seconds, reason = 0, 0, None, None
        try:
            if (report := job.report()) is not None:
                status, done, units = str(report.status), report.units, report.units
                seconds, reason = report.seconds or None, report.reason
            else:
                now = job.progress()
                status, done, units = str(now.status), now.done, now.units
                seconds = round(time.time() - job.name.submitted, 1) if job.name.submitted else None
        except IcefleetError as error:
            status, reason = UNKNOWN, str(error)
        name = job.name
        return cls(
            job.id, name.table, name.catalog, name.operation, status, done, units, name.submitted, seconds, reason
        )

    @property
    def started_text(self) -> str:
        """When it was asked for, as ISO 8601 has it, in UTC; empty when that is not known."""
        return "" if self.started is None else f"{datetime.fromtimestamp(self.started, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def figures(self) -> dict[str, object]:
        """All of it for programs."""
        return {
            "job": self.job,
            "table": self.table,
            "catalog": self.catalog,
            "operation": self.operation,
            "status": self.status,
            "done": self.done,
            "units": self.units,
            "started": self.started_text or None,
            "seconds": self.seconds,
            "reason": self.reason,
        }


def job_lines(jobs: Iterable[Job], *, limit: int, statuses: Collection[str] = ()) -> list[JobLine]:
    """The first jobs that stand as is asked for; without statuses, whatever they are.

    No more jobs are looked up than that takes.
    """
    lines: Iterator[JobLine] = (JobLine.of(job) for job in jobs)
    return list(islice((line for line in lines if not statuses or line.status in statuses), limit))


#: What jobs can be chosen by.
CHOICES: Final = (*(str(status) for status in Status), UNKNOWN)
