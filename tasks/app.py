"""The tasks of the Celery application: a thin one for each step of a job."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Final

from celery import Task

from producer.broker.queue import (
    COMMIT,
    PLAN,
    STAGING,
    SWEEP,
    CommitMessage,
    Messenger,
    UnitMessage,
    parse_message,
    parse_plan_message,
    unit_id,
)
from producer.broker.registry import JobRegistry
from producer.common.errors import Corrupt, IcefleetError
from producer.model.job import Failure, JobId, Report, Request, Status
from producer.state.job_store import JobStore
from tasks.application import app, limit_warm_shutdown, settings
from tasks.job.context import JobContext
from tasks.lifecycle.commit import Unanswered
from tasks.lifecycle.ending import (
    abort_job,
    abort_plan,
    abort_unit,
    find_request,
    finish_clean_up,
    has_waited_long_enough,
)
from tasks.lifecycle.outcomes import Ended, Stage, Step, Waiting, sentence
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.messaging.base_task import Cancelled, Late, QuietTask, Unfinished, Unsuccessful, Waits
from tasks.messaging.delivery import location_of, task_options
from tasks.messaging.heartbeat import send_heartbeats
from tasks.messaging.lease import Lease
from tasks.messaging.retry_policy import RetryPolicy
from tasks.messaging.sweeper import sweep
from tasks.operations.registry import OPERATIONS

__all__ = ["app"]

log = logging.getLogger(__name__)

limit_warm_shutdown()
send_heartbeats(settings)


#: How a job ends whose last task ends as FAILURE.
_BAD: Final = frozenset({Status.FAILED, Status.PARTIAL, Status.REFUSED})

_OPTIONS: Final = task_options(settings)
_PARSE_UNIT: Final = staticmethod(partial(parse_message, UnitMessage))
_PARSE_COMMIT: Final = staticmethod(partial(parse_message, CommitMessage))
#: A unit's lease is dropped for a child that was killed.
_UNIT_OPTIONS: Final = {**_OPTIONS, "Request": "tasks.messaging.lease:UnitRequest"}


def _end_plan(task: Task, request: Request, error: BaseException) -> str:
    return _next(request, abort_plan(request, error))


def _end_unit(task: Task, order: UnitMessage, error: BaseException) -> str:
    location = location_of(task)
    try:
        failure = abort_unit(order, location, error)
    except Exception:
        log.warning("unit %s of %s cannot be ended alone", order.unit, order.job, exc_info=True)
        return _end_job(task, order, error)
    context = JobContext.open(order.job, location)
    plan = context.store.plan(order.round)
    if plan is not None and next(context.store.at(plan).pending(plan.units), None) is None:
        Messenger(settings).commit(order.job, plan.location)
    if failure is None:
        raise _over(context)
    raise Unsuccessful(f"failed: {failure.reason}")


def _end_job(task: Task, order: CommitMessage | UnitMessage, error: BaseException) -> str:
    step = abort_job(order, location_of(task), error)
    try:
        request = find_request(JobContext.open(order.job, location_of(task)), JobRegistry(settings).next_requests)
    except Exception:  # the lock and the queue are known by what the job's id tells
        name = JobId.parse(order.job)
        request = Request(job=order.job, operation=name.operation, catalog=name.catalog, table=name.table)
        heads = {head.job: head for head in JobRegistry(settings).next_requests()}
        request = heads.get(order.job, request)
    try:
        return _next(request, step)
    except (Unfinished, Unsuccessful):
        raise
    except Exception:  # nobody can be told; but the table is not held for ever
        if isinstance(step, Ended) and step.store is not None:
            step.store.forget()
        if (following := JobRegistry(settings).release(request)) is not None:
            Messenger(settings).plan(following)
        raise


@app.task(name=PLAN, parse=staticmethod(parse_plan_message), abort=staticmethod(_end_plan), **_OPTIONS)
def plan(self: Task, request: Request) -> str:
    """Plan a job, or take up one that was planned before, when its table is free."""
    registry = JobRegistry(settings)
    if registry.report(request.job) is not None:
        raise Late("the job has ended")
    if not registry.lock(request):
        raise Waits("waits: another job works on the table")
    registry.mark_sent(request.job)
    return _next(request, begin(request, settings))


def stage_unit(task: Task, order: UnitMessage) -> str:
    """Stage one unit, and have the round committed if it was the last."""
    context = JobContext.open(order.job, location_of(task))
    try:
        plan = context.store.load_plan(order.round)
    except Corrupt as error:
        Messenger(settings).commit(order.job, context.store.location)  # it ends the job, or plans the round again
        raise Unsuccessful(f"failed: {error}") from None
    if plan is None:
        raise _over(context)

    def progress(done: int, files: int) -> None:
        percent = 100 * done // max(files, 1)
        task.send_event("task-progress", result=f"{percent}% {done}/{files} files")
        lease.progress(done, files)

    JobRegistry(settings).extend_lock(plan.request)
    with Lease(settings, order.job, unit_id(plan, order.unit), task.request.hostname) as lease:
        outcome = stage(context, plan, order.unit, settings, progress)
    if next(context.store.at(plan).pending(plan.units), None) is None:
        Messenger(settings).commit(order.job, plan.location)
    if isinstance(outcome, Failure):
        raise Unsuccessful(f"failed: {outcome.reason}")
    if outcome is None:
        raise _over(context)
    return OPERATIONS[plan.request.operation].summarize(outcome)


for _name in STAGING.values():  # a task and a queue of its own for each operation
    app.task(name=_name, parse=_PARSE_UNIT, abort=staticmethod(_end_unit), **_UNIT_OPTIONS)(stage_unit)


@app.task(name=COMMIT, parse=_PARSE_COMMIT, abort=staticmethod(_end_job), **_OPTIONS)
def commit(self: Task, order: CommitMessage) -> str:
    """Commit a job's round once all of its units have ended."""
    context, registry = JobContext.open(order.job, location_of(self)), JobRegistry(settings)
    request, known = find_request(context, registry.next_requests), registry.report(order.job)
    try:
        step = finish_clean_up(context, known) if known is not None else advance(context, settings)
    except Unanswered as error:
        if not has_waited_long_enough(context, error, RetryPolicy.of(settings)):
            raise Waits(f"no answer from the catalog, the sweeper will ask again: {error}") from None
        step = abort_job(order, location_of(self), error)
    if isinstance(step, Stage):  # another round: this is not the last word on the job
        raise Waits(_next(request, step))
    return _next(request, step)


@app.task(name=SWEEP, base=QuietTask, bind=True)
def sweep_tables(self: QuietTask) -> str:
    """Take up jobs that lost a message."""
    started = time.time()
    taken = sweep(settings)
    return self.send_success(f"took up {', '.join(taken)}", started) if taken else "nothing was lost"


def _over(context: JobContext) -> Cancelled | Late:
    """What there is to say of a unit whose job has ended."""
    report = JobRegistry(settings).report(context.id)
    if context.store.is_cancelled() or (report is not None and report.status is Status.CANCELLED):
        return Cancelled("cancelled: nothing of this unit is committed")
    return Late("the job has ended")


def _next(request: Request, step: Step) -> str:
    """Send what comes next."""
    messenger = Messenger(settings)
    match step:
        case Stage(plan, units) if units:
            JobRegistry(settings).mark_sent(request.job, settings.visibility_timeout)
            messenger.stage(plan, units)
            return f"{len(units)} units to stage"
        case Stage(plan, _):
            messenger.commit(request.job, plan.location)
            return "all staged"
        case Waiting():
            raise Waits("waits for its units")
        case Ended(None):
            raise Late("the job has ended")
        case Ended(report, store) if report is not None:
            return _finish(request, report, store)
    raise AssertionError(step)


def _finish(request: Request, report: Report, store: JobStore | None) -> str:
    """Post the report, and let the next job have the table.

    Raises:
        Unsuccessful: the job has failed, in part or as a whole, or was refused.
        Cancelled: it was cancelled.

    Whoever dies in between is found by the conclusion, which goes when the report is posted; or by the registry, where
    the job has its table until the end.
    """
    registry = JobRegistry(settings)
    if registry:
        registry.save_report(report)
    else:
        _leave_on_storage(request, report)
    if store is not None:
        store.forget(request.branch)
    if (following := registry.release(request)) is not None:
        Messenger(settings).plan(following)
    log.info("%s: %s", request.job, report.model_dump_json())
    text = sentence(report)
    if report.status in _BAD:
        raise Unsuccessful(text)
    if report.status is Status.CANCELLED:
        raise Cancelled(text)
    return text


def _leave_on_storage(request: Request, report: Report) -> None:
    """Without a Redis the report stays at the table for whoever asks, until the next one takes its place."""
    try:
        JobContext.open(request.job).store.write_last(report, request.branch)
    except IcefleetError as error:
        log.warning("%s has ended as %s, and its table does not keep the report: %s", request.job, report.status, error)
