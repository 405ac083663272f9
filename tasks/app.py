"""The tasks of the Celery application: one for each step of a job, and the sweep."""

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
from producer.common.sizes import count_text
from producer.model.job import Failure, Report, Request, Status
from producer.model.plan import Plan
from tasks.application import app, limit_warm_shutdown, settings
from tasks.job.context import JobContext, request_from_id
from tasks.lifecycle.commit import CommitStateUnknown
from tasks.lifecycle.ending import (
    abort_job,
    abort_plan,
    abort_unit,
    find_request,
    finish_clean_up,
    has_waited_long_enough,
    is_over,
    post_report,
)
from tasks.lifecycle.outcomes import Ended, Stage, Step, Waiting, describe_report
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.messaging.base_task import Cancelled, Late, QuietTask, Unfinished, Unsuccessful, Waits
from tasks.messaging.delivery import DeliveredTask, location_of, report_requests
from tasks.messaging.heartbeat import send_heartbeats
from tasks.messaging.lease import Lease
from tasks.messaging.retry_policy import RetryPolicy
from tasks.messaging.sweeper import sweep
from tasks.operations.registry import OPERATIONS

__all__ = ["app"]

log = logging.getLogger(__name__)

limit_warm_shutdown()
send_heartbeats(settings)


#: The statuses of a job whose last task ends as FAILURE.
_UNSUCCESSFUL: Final = frozenset({Status.FAILED, Status.PARTIAL, Status.REFUSED})

_OPTIONS: Final = {
    "base": DeliveredTask,
    "bind": True,
    "retry_policy": RetryPolicy.of(settings),
    "registry": JobRegistry(settings),
}
_PARSE_UNIT: Final = staticmethod(partial(parse_message, UnitMessage))
_PARSE_COMMIT: Final = staticmethod(partial(parse_message, CommitMessage))
#: A unit's lease is dropped for a child that was killed.
_UNIT_OPTIONS: Final = {**_OPTIONS, "Request": "tasks.messaging.lease:UnitRequest"}


def _end_plan(task: Task, request: Request, error: BaseException) -> str:
    return _proceed(request, abort_plan(request, error))


def _end_unit(task: Task, order: UnitMessage, error: BaseException) -> str:
    location = location_of(task)
    try:
        failure = abort_unit(order, location, error)
    except Exception:
        log.warning("unit %s of %s cannot be ended alone", order.unit, order.job, exc_info=True)
        return _end_job(task, order, error)
    context = JobContext.open(order.job, location)
    if (plan := context.store.plan(order.round)) is not None:
        _commit_if_staged(context, plan)
    if failure is None:
        raise _job_has_ended(context)
    raise Unsuccessful(f"failed: {failure.reason}")


def _end_job(task: Task, order: CommitMessage | UnitMessage, error: BaseException) -> str:
    registry = JobRegistry(settings)
    step = abort_job(order, location_of(task), error)
    try:
        request = find_request(JobContext.open(order.job, location_of(task)), registry.next_requests)
    except Exception:
        known = (head for head in registry.next_requests() if head.job == order.job)
        request = next(known, request_from_id(order.job))
    try:
        return _proceed(request, step)
    except (Unfinished, Unsuccessful):
        raise
    except Exception:  # the report cannot be posted; the table must not stay locked
        if isinstance(step, Ended) and step.store is not None:
            step.store.forget()
        _plan_next(registry.release(request))
        raise


@app.task(name=PLAN, parse=staticmethod(parse_plan_message), abort=staticmethod(_end_plan), **_OPTIONS)
def plan(self: Task, request: Request) -> str:
    """Plan a job, or resume one that is planned already, if its table is free."""
    registry = JobRegistry(settings)
    if registry.report(request.job) is not None:
        raise Late("the job has ended")
    if not registry.lock(request):
        raise Waits("waits: another job works on the table")
    registry.mark_sent(request.job)
    return _proceed(request, begin(request, settings))


def stage_unit(task: Task, order: UnitMessage) -> str:
    """Stage one unit, and have the round committed if it was the last."""
    context = JobContext.open(order.job, location_of(task))
    try:
        plan = context.store.load_plan(order.round)
    except Corrupt as error:
        Messenger(settings).commit(order.job, context.store.location)  # it ends the job, or plans the round again
        raise Unsuccessful(f"failed: {error}") from None
    if plan is None:
        raise _job_has_ended(context)

    def progress(done: int, files: int) -> None:
        percent = 100 * done // max(files, 1)
        task.send_event("task-progress", result=f"{percent}% {done}/{files} files")
        lease.progress(done, files)

    JobRegistry(settings).extend_lock(plan.request)
    with Lease(settings, order.job, unit_id(plan, order.unit), task.request.hostname) as lease:
        outcome = stage(context, plan, order.unit, settings, progress)
    _commit_if_staged(context, plan)
    if isinstance(outcome, Failure):
        raise Unsuccessful(f"failed: {outcome.reason}")
    if outcome is None:
        raise _job_has_ended(context)
    requests = report_requests(JobRegistry(settings), order.job)
    summary = OPERATIONS[plan.request.operation].summarize(outcome)
    return f"{summary}; {requests.warning}" if requests is not None and requests.warning else summary


for _name in STAGING.values():  # a task and a queue of its own for each operation
    app.task(name=_name, parse=_PARSE_UNIT, abort=staticmethod(_end_unit), **_UNIT_OPTIONS)(stage_unit)


@app.task(name=COMMIT, parse=_PARSE_COMMIT, abort=staticmethod(_end_job), **_OPTIONS)
def commit(self: Task, order: CommitMessage) -> str:
    """Commit a job's round once all of its units have ended."""
    context, registry = JobContext.open(order.job, location_of(self)), JobRegistry(settings)
    request, known = find_request(context, registry.next_requests), registry.report(order.job)
    try:
        step = finish_clean_up(context, known) if known is not None else advance(context, settings)
    except CommitStateUnknown as error:
        if not has_waited_long_enough(context, error, RetryPolicy.of(settings)):
            raise Waits(f"no answer from the catalog, the sweeper will ask again: {error}") from None
        step = abort_job(order, location_of(self), error)
    if isinstance(step, Ended) and step.report is None:
        raise _job_has_ended(context)
    result = _proceed(request, step)
    if isinstance(step, Stage):  # another round: the job goes on
        raise Waits(result)
    return result


@app.task(name=SWEEP, base=QuietTask, bind=True)
def sweep_tables(self: QuietTask) -> str:
    """Resume jobs that lost a message."""
    started = time.time()
    resumed = sweep(settings)
    return self.send_success(f"took up {', '.join(resumed)}", started) if resumed else "nothing was lost"


def _job_has_ended(context: JobContext) -> Cancelled | Late:
    """Return the exception by which a task ends after its job.

    A process without a broker posts no report, and cannot release the table that the sweeper has locked for its job;
    no record says on which branch.
    """
    registry = JobRegistry(settings)
    report = registry.report(context.id)
    if report is None and is_over(context):
        for branch in context.store.branches:
            request = request_from_id(context.id).model_copy(update={"branch": branch})
            if registry.has_lock(request):
                _plan_next(registry.release(request))
    if context.store.is_cancelled() or (report is not None and report.status is Status.CANCELLED):
        return Cancelled("cancelled: nothing of this unit is committed")
    return Late("the job has ended")


def _commit_if_staged(context: JobContext, plan: Plan) -> None:
    if next(context.store.at(plan).pending(plan.units), None) is None:
        Messenger(settings).commit(context.id, plan.location)


def _plan_next(request: Request | None) -> None:
    if request is not None:
        Messenger(settings).plan(request)


def _proceed(request: Request, step: Step) -> str:
    """Send the messages that a step leads to, or post the report of an ended job.

    Raises:
        Unsuccessful: The job has failed, in part or as a whole, or was refused.
        Unfinished: The job was cancelled, waits, or had ended before.
    """
    match step:
        case Stage(plan, units) if units:
            JobRegistry(settings).mark_sent(request.job, settings.visibility_timeout)
            Messenger(settings).stage(plan, units)
            return f"{count_text(len(units), 'unit')} to stage"
        case Stage(plan, _):
            Messenger(settings).commit(request.job, plan.location)
            return "all staged"
        case Waiting():
            raise Waits("waits for its units, or for a commit that another committer has begun")
        case Ended(report) if report is not None:
            registry = JobRegistry(settings)
            if not registry:
                _keep_at_table(request, report)
            report_requests(registry, request.job)
            _plan_next(post_report(request, step, registry))
            log.info("%s: %s", request.job, report.model_dump_json())
            text = describe_report(report)
            if report.status in _UNSUCCESSFUL:
                raise Unsuccessful(text)
            if report.status is Status.CANCELLED:
                raise Cancelled(text)
            return text
    raise AssertionError(step)


def _keep_at_table(request: Request, report: Report) -> None:
    """Write the report beside the table, where it stays until the branch's next one: there is no Redis to hold it."""
    try:
        JobContext.open(request.job).store.write_last(report, request.branch)
    except IcefleetError as error:
        log.warning("%s has ended as %s, and its table does not keep the report: %s", request.job, report.status, error)
