"""The end of a job: its report is recorded, its files are cleaned up, its report is posted, its table is released.

A job ends in this order, so that another process can go on where one died:

1. ``closing`` is recorded: no round is committed any more, and busy workers delete what they wrote.
2. ``conclusion`` is recorded: the report that the job ends with. Where no commit can be pending, both are written side
   by side: whoever finds one of them alone ends the job again.
3. The files that are in no snapshot are deleted, then the records of the job.
4. The report is posted, the ``conclusion`` is deleted, and the table is released (:func:`post_report`).

Each function can be called twice, also side by side.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from producer.broker.queue import CommitMessage, UnitMessage
from producer.broker.registry import JobRegistry
from producer.common.errors import IcefleetError, Newer, OutsideTable, Reason, Refused
from producer.iceberg.catalog import open_table
from producer.model.job import Failure, Report, Request, Status
from producer.model.plan import Plan
from producer.state.commit_history import report_from_history
from producer.storage.files import start
from tasks.job.cleanup import clean_up
from tasks.job.context import JobContext, request_from_id
from tasks.job.pending_commit import has_pending_commit
from tasks.lifecycle.commit import CommitStateUnknown
from tasks.lifecycle.outcomes import Ended, Waiting, conclude_report, report_of
from tasks.lifecycle.stage import fail_unit
from tasks.messaging.retry_policy import RetryPolicy, is_transient, reason_of

log = logging.getLogger(__name__)


def is_over(context: JobContext) -> bool:
    """Return whether no record is left of a job."""
    store, operation = context.store, context.name.operation
    return (
        store.latest_plan() is None and not store.has_conclusion() and store.request_of(operation, context.id) is None
    )


def finish_clean_up(context: JobContext, report: Report) -> Ended | Waiting:
    """Delete what is left of a job whose report is posted already, if anything is."""
    return Ended(None) if is_over(context) else _wait_for_pending_commit(context) or close_job(context, report)


def fail_job(context: JobContext, reason: str) -> Ended | Waiting:
    """End a job as failed, or as partial if it has committed a round."""
    store = context.store
    plan, request = store.latest_plan(), find_request(context)
    report, status = report_of(request, Status.FAILED, reason=reason), Status.FAILED
    if (committed := _report_of_commits(context)) is not None:
        report, status = committed.model_copy(update={"status": Status.PARTIAL, "reason": reason}), Status.PARTIAL
    return close_job(context, report) if plan is None else end_job(context, report, plan, status, reason)


def reject_foreign_plan(context: JobContext, plan: Plan) -> Ended | None:
    """End a job whose plan was not made for it; return None if the plan is the job's own.

    If the table was moved or dropped, only the message says where the records are: they may be another job's.
    """
    if (objection := context.objection(plan)) is None:
        return None
    if not context.at_table:
        raise OutsideTable(objection)
    return close_job(context, report_of(context.request(plan), Status.FAILED, reason=objection))


def find_request(context: JobContext, others: Callable[[], Iterable[Request]] = tuple) -> Request:
    """Return the job's request from its records, else from the others, else as it follows from the job's id."""
    name, plan = context.name, context.store.latest_plan()
    if plan is not None:
        return context.request(plan)
    current = context.store.request_of(name.operation, context.id)
    for known in (current,) if current is not None else others():
        if known.job == context.id and name.matches(known):
            return known
    return request_from_id(context.id)


def end_job(
    context: JobContext,
    report: Report,
    plan: Plan,
    status: Status | None = None,
    reason: str | None = None,
    *,
    changed: bool = False,
) -> Ended | Waiting:
    """End a job after a round, which is in the table if ``changed``; without a status, it follows from the report."""
    report = conclude_report(report, plan.request, status, reason)
    if changed:
        return close_job(context, report)
    step = _wait_for_pending_commit(context)
    if step is None and (committed := _report_of_commits(context)) and committed.snapshot_id != report.snapshot_id:
        report = committed  # a commit that was pending when the report was made has happened
    return step or close_job(context, report)


def _wait_for_pending_commit(context: JobContext) -> Waiting | None:
    """Close a job; if a commit of it is pending, which a clean-up would delete files of, return a wait for it."""
    context.store.close()
    plan = context.store.latest_plan()
    return Waiting(plan) if plan is not None and has_pending_commit(context, plan) else None


def close_job(context: JobContext, report: Report) -> Ended:
    """Record the report that a job ends with, and clean up; the report says if files had to be left."""
    closing = start(context.store.close)
    context.store.conclude(report)
    closing.result()
    if left := clean_up(context):
        report = report.model_copy(update={"reason": _with_leftovers(report.reason, f": {left[0]}")})
        context.store.conclude(report)
    return Ended(report, context.store)


def post_report(request: Request, ended: Ended, registry: JobRegistry) -> Request | None:
    """Post the report of an ended job, then release its table.

    A process that dies in between leaves the conclusion, which is deleted after the report is posted, or an entry in
    the registry, where the job holds its table until the end: the sweeper goes on from either.

    Returns:
        The job that is the table's next, or None if no job waits.
    """
    assert ended.report is not None
    registry.save_report(ended.report)
    if ended.store is not None:
        ended.store.forget(request.branch)
    return registry.release(request)


def raise_if_transient(error: IcefleetError) -> None:
    """Raise an error that ends no job: no answer, access denied, or a newer record; all stays staged."""
    if isinstance(error, Newer) or (isinstance(error, Refused) and error.reason in (Reason.NO_ANSWER, Reason.DENIED)):
        raise error


def _report_of_commits(context: JobContext) -> Report | None:
    """Return the report of what the job has committed, from the table's history; None if it has committed nothing."""
    try:
        table = open_table(context.name.catalog, context.name.table)
    except IcefleetError as error:
        raise_if_transient(error)
        return None
    return report_from_history(table.metadata, context.name, context.id)


def abort_plan(request: Request, error: BaseException) -> Ended:
    """End a job that cannot be planned, and delete what was written for it."""
    reason = f"Planning failed: {reason_of(error)}"
    try:
        return close_job(JobContext.open(request.job), report_of(request, Status.FAILED, reason=reason))
    except Exception:
        log.warning("what was begun of %s cannot be deleted", request.job, exc_info=True)
        return Ended(report_of(request, Status.FAILED, reason=_with_leftovers(reason)))


def abort_unit(order: UnitMessage, location: str | None, error: BaseException) -> Failure | None:
    """End a unit as failed; return None if its job has ended.

    Raises:
        Exception: Its records cannot be read or written either.
    """
    context = JobContext.open(order.job, location)
    plan = context.store.load_plan(order.round)
    if plan is None or context.objection(plan) is not None:
        return None
    return fail_unit(context, plan, order.unit, reason_of(error))


def abort_job(order: CommitMessage | UnitMessage, location: str | None, error: BaseException) -> Ended | Waiting:
    """End a job whose round cannot be committed, or whose end cannot be completed.

    What is committed stays, and its report says so. If the records cannot be written or deleted either, the report
    says that files may be left.
    """
    reason = f"The commit failed: {reason_of(error)}"
    context: JobContext | None = None
    try:
        context = JobContext.open(order.job, location)
        if (known := context.conclusion()) is not None:
            return close_job(context, known)
        return fail_job(context, reason)
    except Exception as again:
        log.warning("what is left of %s cannot be cleaned up", order.job, exc_info=True)
        report = _report_without_clean_up(context, order.job, reason)
        # The sweeper cleans up after an error that passes; it would meet any other at each of its sweeps.
        return Ended(report, None if context is None or is_transient(again) else context.store)


def has_waited_long_enough(context: JobContext, error: CommitStateUnknown, policy: RetryPolicy) -> bool:
    """Return whether a catalog has had its time to answer a commit: every committer that tried has left a record."""
    plan = context.store.latest_plan()
    notes = context.store.at(plan).commits() if plan is not None else []
    if error.__cause__ is not None and not is_transient(error.__cause__):
        return len(notes) >= policy.max_attempts
    return bool(notes) and time.time() - min(note.started for note in notes) >= policy.max_seconds


def _report_without_clean_up(context: JobContext | None, job: str, reason: str) -> Report:
    """Return the report of a job whose files cannot be cleaned up."""
    try:
        known = context.conclusion() if context is not None else None
        found = find_request(context) if context is not None else None
    except Exception:
        known = found = None
    if known is not None:
        return known.model_copy(update={"reason": _with_leftovers(known.reason)})
    return report_of(found or request_from_id(job), Status.FAILED, reason=_with_leftovers(reason))


def _with_leftovers(reason: str | None, detail: str = ".") -> str:
    return f"{reason or ''} Files of it may be left for the table's orphan clean-up{detail}".strip()
