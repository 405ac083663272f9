"""Reports of jobs, summed over their rounds."""

from __future__ import annotations

import time

from producer.common.redaction import masked
from producer.model.job import Failure, Report, Request, Status
from producer.model.plan import Plan
from producer.planning.operations import OPERATIONS
from producer.state.commit_history import COUNTS, count
from tasks.lifecycle.prepared_commit import CommitResult


def report_of(request: Request, status: Status, *, reason: str | None = None) -> Report:
    """The report of a job that changed nothing."""
    return Report(
        job=request.job,
        table=request.table,
        catalog=request.catalog,
        operation=request.operation,
        status=status,
        reason=reason and masked(reason),
        seconds=_seconds(request),
    )


def summed(plan: Plan, done: CommitResult | None, failures: tuple[Failure, ...]) -> Report:
    """The report of all rounds up to this one; how it ended is still to be said."""
    before = plan.before or report_of(plan.request, Status.COMMITTING)
    changes: dict[str, object] = {
        "units": before.units + len(plan.units),
        "failed_units": before.failed_units + len(failures),
        "failures": before.failures + failures,
    }
    if done is not None:
        counts = dict(done.counts)
        if done.snapshot is not None:
            changes["snapshot_id"] = done.snapshot.snapshot_id
            counts = {name: count(done.snapshot, key) for name, key in COUNTS.items()}
        changes |= {name: getattr(before, name) + number for name, number in counts.items()}
        if done.metadata_changed:
            changes["status"] = Status.COMMITTED  # no snapshot id shows later that the job has changed the table
    return before.model_copy(update=changes)


def concluded(report: Report, request: Request, status: Status | None = None, reason: str | None = None) -> Report:
    """The report with its end: the status follows from what was committed and what failed, if it is not given."""
    if status is None:
        status, reason = _conclusion(report)
    told = reason and masked(reason)
    return report.model_copy(update={"status": status, "reason": told, "seconds": _seconds(request)})


def _conclusion(report: Report) -> tuple[Status, str | None]:
    changed = report.snapshot_id is not None or report.status is Status.COMMITTED
    if not report.failures:
        return (Status.COMMITTED, None) if changed else (Status.NOTHING_TO_DO, "somebody else has done it meanwhile")
    of = f"{report.failed_units} of {report.units} units failed"
    first = report.failures[0]
    where = f"{first.partition}: " if first.partition else ""
    return Status.PARTIAL if changed else Status.FAILED, f"{of}; the first: {where}{first.reason}"


def _seconds(request: Request) -> float:
    return round(time.time() - request.submitted, 3) if request.submitted else 0.0


def sentence(report: Report) -> str:
    """A report in one line."""
    if report.reason:
        return f"{report.status}: {report.reason}"
    change = OPERATIONS[report.operation].describe_result(report)
    return f"{report.status}: snapshot {report.snapshot_id}, {change} in {report.seconds} s"
