"""The end of a job: how it ended is noted, what it leaves is cleaned up, and its report stays until it is posted.

Each function can be called twice, also side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from producer.common.errors import Elsewhere, IcefleetError, Newer, Reason, Refused
from producer.iceberg.catalog import open_table
from producer.model.job import Report, Request, Status
from producer.model.plan import Plan
from producer.state.commit_history import report_from_history
from tasks.job.cleanup import clean_up
from tasks.job.context import JobContext
from tasks.job.pending_commit import has_pending_commit
from tasks.lifecycle.outcomes import Ended, Waiting
from tasks.lifecycle.reports import concluded, report_of


def give_up(request: Request, reason: str) -> Ended:
    """End a job that cannot be planned, and delete what was begun of it."""
    return leave(JobContext.open(request.job), report_of(request, Status.FAILED, reason=reason))


def clear_away(context: JobContext, report: Report) -> Ended | Waiting:
    """Delete what is left of a job that has ended as its report says, where anything is."""
    store, operation = context.store, context.name.operation
    if store.latest_plan() is None and not store.concluded() and store.noted(operation, context.id) is None:
        return Ended(None)
    return leave_unless_committed(context, report)


def fail(context: JobContext, reason: str) -> Ended | Waiting:
    """End a job that cannot be brought to its end since a record of it is wrong; what it has committed stays."""
    store = context.store
    plan, request = store.latest_plan(), asked(context)
    report, status = report_of(request, Status.FAILED, reason=reason), Status.FAILED
    if (told := _history(context)) is not None:
        report, status = told.model_copy(update={"status": Status.PARTIAL, "reason": reason}), Status.PARTIAL
    return leave(context, report) if plan is None else end(context, report, plan, status, reason)


def refuse(context: JobContext, plan: Plan) -> Ended | None:
    """End a job whose plan was not made for it; None where it was.

    Where the table's own place is another one, or gone, the message alone says where the records lie: they may be
    those of another job.
    """
    if (objection := context.objection(plan)) is None:
        return None
    if not context.at_table:
        raise Elsewhere(objection)
    return leave(context, report_of(context.request(plan), Status.FAILED, reason=objection))


def asked(context: JobContext, others: Callable[[], Iterable[Request]] = tuple) -> Request:
    """What was asked for, as its records or else others tell; a job's id alone tells of its table."""
    name, plan = context.name, context.store.latest_plan()
    if plan is not None:
        return context.request(plan)
    current = context.store.noted(name.operation, context.id)
    for known in (current,) if current is not None else others():
        if (known.job, known.operation, known.catalog, known.table) == (context.id, *name.about):
            return known
    return context.request_by_name


def end(
    context: JobContext,
    report: Report,
    plan: Plan,
    status: Status | None = None,
    reason: str | None = None,
    *,
    changed: bool = False,
) -> Ended | Waiting:
    """End a job after a round; its status and reason follow from its report where they are not given.

    Args:
        changed: Whether this round is in the table.
    """
    report = concluded(report, plan.request, status, reason)
    return leave(context, report) if changed else leave_unless_committed(context, report)


def leave_unless_committed(context: JobContext, report: Report) -> Ended | Waiting:
    """Leave a table that the job has not changed, as far as is known.

    Another committer may be about to commit what a clean-up would delete.
    """
    context.store.close()
    plan = context.store.latest_plan()
    if plan is not None and has_pending_commit(context, plan):
        return Waiting(plan)
    return leave(context, report)


def leave(context: JobContext, report: Report) -> Ended:
    """Conclude a job and clean up after it; of what cannot be told apart from the table's files the report tells."""
    context.store.conclude(report)
    if left := clean_up(context):
        told = f"{report.reason} " if report.reason else ""
        reason = f"{told}Files of it may be left for the table's orphan clean-up: {left[0]}"
        report = report.model_copy(update={"reason": reason})
        context.store.conclude(report)
    return Ended(report, context.store)


def raise_if_it_may_pass(error: IcefleetError) -> None:
    """A catalog that is away, access that is denied for now, or a record for others ends no job: all stays staged."""
    if isinstance(error, Newer) or (isinstance(error, Refused) and error.reason in (Reason.NO_ANSWER, Reason.DENIED)):
        raise error


def _history(context: JobContext) -> Report | None:
    """What the table says that the job has committed."""
    try:
        table = open_table(context.name.catalog, context.name.table)
    except IcefleetError as error:
        raise_if_it_may_pass(error)
        return None
    return report_from_history(table.metadata, context.name, context.id)
