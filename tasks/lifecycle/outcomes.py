"""What a step of a job leads to, and the report of a job, summed over its rounds."""

from __future__ import annotations

import time
from dataclasses import dataclass

from producer.common.redaction import redact
from producer.common.sizes import count_text
from producer.model.job import Failure, Report, Request, Status
from producer.model.plan import Plan
from producer.planning import OPERATIONS
from producer.state.commit_history import COUNTS, count
from producer.state.job_store import JobStore
from tasks.lifecycle.prepared_commit import CommitResult


@dataclass(frozen=True)
class Stage:
    """Units must be staged; then :func:`tasks.lifecycle.rounds.advance` goes on."""

    plan: Plan
    units: tuple[int, ...]


@dataclass(frozen=True)
class Waiting:
    """Other processes still stage units, or commit them."""

    plan: Plan


@dataclass(frozen=True)
class Ended:
    """The job has ended, and its files are cleaned up."""

    #: None if the job had ended before.
    report: Report | None
    #: Holds the conclusion until ``forget`` is called, so that no report is lost; None if there is no conclusion.
    store: JobStore | None = None


Step = Stage | Waiting | Ended


def report_of(request: Request, status: Status, *, reason: str | None = None) -> Report:
    """Return the report of a job that changed nothing."""
    return Report(
        job=request.job,
        table=request.table,
        catalog=request.catalog,
        operation=request.operation,
        status=status,
        reason=reason and redact(reason),
        seconds=_seconds(request),
    )


def sum_report(plan: Plan, result: CommitResult | None, failures: tuple[Failure, ...]) -> Report:
    """Return the report of all rounds up to this one, without its final status."""
    before = plan.before or report_of(plan.request, Status.COMMITTING)
    changes: dict[str, object] = {
        "units": before.units + len(plan.units),
        "failed_units": before.failed_units + len(failures),
        "failures": before.failures + failures,
    }
    if result is not None:
        counts = dict(result.counts)
        if result.snapshot is not None:
            changes["snapshot_id"] = result.snapshot.snapshot_id
            counts = {name: count(result.snapshot, key) for name, key in COUNTS.items()}
        changes |= {name: getattr(before, name) + number for name, number in counts.items()}
        if result.metadata_changed:
            changes["status"] = Status.COMMITTED  # no snapshot id shows later that the job has changed the table
    return before.model_copy(update=changes)


def conclude_report(
    report: Report, request: Request, status: Status | None = None, reason: str | None = None
) -> Report:
    """Return the final report; without a status, status and reason follow from what was committed and what failed."""
    if status is None:
        status, reason = _final_status(report)
    text = reason and redact(reason)
    return report.model_copy(update={"status": status, "reason": text, "seconds": _seconds(request)})


def _final_status(report: Report) -> tuple[Status, str | None]:
    changed = report.snapshot_id is not None or report.status is Status.COMMITTED
    if not report.failures:
        return (
            (Status.COMMITTED, None) if changed else (Status.NOTHING_TO_DO, "another writer already made this change")
        )
    of = f"{report.failed_units} of {count_text(report.units, 'unit')} failed"
    first = report.failures[0]
    where = f"{first.partition}: " if first.partition else ""
    return Status.PARTIAL if changed else Status.FAILED, f"{of}; the first: {where}{first.reason}"


def _seconds(request: Request) -> float:
    """Return the seconds since a request; 0 if the clock of whoever submitted it is ahead."""
    return max(0.0, round(time.time() - request.submitted, 3)) if request.submitted else 0.0


def describe_report(report: Report) -> str:
    """Describe a report in one line."""
    if report.reason:
        return f"{report.status}: {report.reason}"
    change = OPERATIONS[report.operation].describe_result(report)
    snapshot = f"snapshot {report.snapshot_id}, " if report.snapshot_id is not None else ""
    return f"{report.status}: {snapshot}{change} in {report.seconds} s"
