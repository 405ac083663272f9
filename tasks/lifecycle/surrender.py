"""The end of a job, or of a unit, that cannot be brought to its end otherwise."""

from __future__ import annotations

import logging
import time

from producer.broker.messages import CommitMessage, UnitMessage
from producer.common.errors import IcefleetError
from producer.model.job import Failure, JobId, Report, Request, Status
from tasks.job.context import JobContext
from tasks.lifecycle.commit import Unanswered
from tasks.lifecycle.ending import asked, fail, give_up, leave
from tasks.lifecycle.outcomes import Ended, Waiting
from tasks.lifecycle.reports import report_of
from tasks.lifecycle.stage import fail_unit, reason_of
from tasks.messaging.retry_policy import RetryPolicy, is_transient

log = logging.getLogger(__name__)


def surrender_plan(request: Request, error: BaseException) -> Ended:
    """End a job that cannot be planned."""
    reason = f"It could not be planned: {told(error)}"
    try:
        return give_up(request, reason)
    except Exception:
        log.warning("what was begun of %s cannot be deleted", request.job, exc_info=True)
        return Ended(_abandoned(request, reason))


def surrender_unit(order: UnitMessage, location: str | None, error: BaseException) -> Failure | None:
    """End a unit as failed; None when its job has ended.

    Raises:
        Exception: its records cannot be read or written either.
    """
    context = JobContext.open(order.job, location)
    plan = context.store.load_plan(order.round)
    if plan is None or context.objection(plan) is not None:
        return None
    return fail_unit(context, plan, order.unit, told(error))


def surrender_job(order: CommitMessage | UnitMessage, location: str | None, error: BaseException) -> Ended | Waiting:
    """End a job whose round cannot be committed, or whose end cannot be carried through.

    What is committed stays, and its report says so. Where not even the records can be written or deleted any more,
    the report says that files may be left.
    """
    reason = f"It could not be committed: {told(error)}"
    context: JobContext | None = None
    try:
        context = JobContext.open(order.job, location)
        if (known := context.conclusion()) is not None:
            return leave(context, known)
        return fail(context, reason)
    except Exception as again:
        log.warning("what is left of %s cannot be cleaned up", order.job, exc_info=True)
        report = _last_words(context, order.job, reason)
        # What may pass is cleaned up when it has passed, by the sweeper; what stays would be met at each of its looks.
        return Ended(report, None if context is None or is_transient(again) else context.store)


def is_hopeless(context: JobContext, error: Unanswered, policy: RetryPolicy) -> bool:
    """Whether a catalog has had its time to answer a commit: every committer that tried has left a note of it."""
    plan = context.store.latest_plan()
    notes = context.store.at(plan).commits() if plan is not None else []
    if error.error is not None and not is_transient(error.error):
        return len(notes) >= policy.max_attempts
    return bool(notes) and time.time() - min(note.started for note in notes) >= policy.max_seconds


def told(error: BaseException) -> str:
    """An error in a line; those of ours are sentences."""
    if isinstance(error, IcefleetError):
        return str(error)
    return reason_of(error)


def _last_words(context: JobContext | None, job: str, reason: str) -> Report:
    """How a job ends whose files cannot be cleaned up."""
    request = JobId.parse(job)
    try:
        known = context.conclusion() if context is not None else None
        found = asked(context) if context is not None else None
    except Exception:
        known = found = None
    if known is not None:
        return known.model_copy(update={"reason": _left(known.reason or "")})
    asked_for = found or Request(job=job, operation=request.operation, catalog=request.catalog, table=request.table)
    return _abandoned(asked_for, reason)


def _abandoned(request: Request, reason: str) -> Report:
    return report_of(request, Status.FAILED, reason=_left(reason))


def _left(reason: str) -> str:
    return f"{reason} Files of it may be left for the table's orphan clean-up.".strip()
