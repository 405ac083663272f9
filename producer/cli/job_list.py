"""Lines of a list of jobs."""

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

#: The status of a job whose state cannot be read.
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    job: str
    table: str
    catalog: str
    operation: str
    #: One of :class:`~producer.model.job.Status`, or ``unknown``.
    status: str
    #: Units that have ended, and all of them; 0 until the job is planned.
    done: int
    units: int
    #: When the job was submitted, in seconds since 1970.
    started: float | None
    #: Seconds from then to its end, or to now.
    seconds: float | None
    #: Why it ended as it did, or why its state is unknown.
    reason: str | None

    @classmethod
    def of(cls, job: Job) -> JobLine:
        """Read a job's state."""
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
        """When the job was submitted, as ISO 8601 in UTC; empty if unknown."""
        return "" if self.started is None else f"{datetime.fromtimestamp(self.started, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def as_json(self) -> dict[str, object]:
        """Return the line as a JSON object."""
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
    """Return lines of the first jobs that have one of the statuses, or of the first jobs if no status is given.

    No more jobs are read than necessary.
    """
    lines: Iterator[JobLine] = (JobLine.of(job) for job in jobs)
    return list(islice((line for line in lines if not statuses or line.status in statuses), limit))


#: The statuses that jobs can be filtered by.
CHOICES: Final = (*(str(status) for status in Status), UNKNOWN)
