"""The Celery application: how messages are delivered, and one thin task for each step of a job."""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from celery import Celery, Task
from kombu.utils.url import parse_url

from producer.board import Board
from producer.errors import Corrupt, IcefleetError, Newer
from producer.masking import mask_logs
from producer.messages import Failure, Operation, Report, Request, Status
from producer.messenger import COMMIT, COMPACT, CONVERT, PLAN, QUEUES, SWEEP, Messenger, unit_id
from producer.orders import CommitOrder, UnitOrder, order_of, request_of
from producer.settings import Settings
from producer.sizes import size_text
from producer.staging import Staged
from producer.store import JobStore
from tasks.commit import Unanswered
from tasks.delivery import DELIVERY, location_of
from tasks.drain import drain
from tasks.ending import asked, clear_away, fail, give_up
from tasks.job import JobContext
from tasks.lease import Lease
from tasks.presence import keep_present
from tasks.reports import sentence
from tasks.rounds import advance, begin
from tasks.staging import first_line, stage
from tasks.steps import Ended, Stage, Step, Waiting
from tasks.sweep import sweep
from tasks.verdicts import Cancelled, Late, Unsuccessful, Waits
from workers.errors import DataError

log = logging.getLogger(__name__)

mask_logs()
settings = Settings.load()

app = Celery("icefleet", broker=settings.broker_url or "memory://", task_cls="tasks.discreet:DiscreetTask")
app.conf.update(
    broker_use_ssl=parse_url(settings.broker_url).get("ssl", False),  # Flower does not look into the address for it
    task_default_queue="convert",
    task_routes={name: {"queue": queue} for name, queue in QUEUES.items()},
    # Messages are data: what could run code while it is read is refused unread.
    accept_content=["json"],
    result_accept_content=["json"],
    task_serializer="json",
    event_serializer="json",
    task_ignore_result=True,  # what a task has done is on storage; Flower shows its result from the event
    # A message is given back only when its work is done, and goes to somebody else when the process dies.
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    task_time_limit=settings.hard_limit,
    task_soft_time_limit=settings.unit_seconds,
    # Redis counts from delivery and never renews: what is still being worked on must not be delivered again.
    broker_transport_options={"visibility_timeout": settings.visibility_timeout, "queue_order_strategy": "priority"},
    broker_connection_retry_on_startup=True,
    # A worker that cannot send what comes next has nothing better to do than to wait for Redis.
    task_publish_retry_policy={"max_retries": None, "interval_start": 0, "interval_step": 0.5, "interval_max": 5},
    worker_max_tasks_per_child=settings.recycle_units,
    worker_send_task_events=True,
    task_send_sent_event=True,
    task_track_started=True,
    beat_schedule={
        "sweep": {"task": SWEEP, "schedule": float(settings.sweep_seconds), "options": {"queue": QUEUES[SWEEP]}},
    },
)

drain(settings)
keep_present(settings)


#: How a job ends whose last task ends as FAILURE.
_BAD: Final = frozenset({Status.FAILED, Status.PARTIAL, Status.REFUSED})

#: Units are given up for whoever is killed over them.
_UNIT: Final = {**DELIVERY, "Request": "tasks.requests:UnitRequest"}

#: What data is to blame for, records among it, and what will be the same next time.
_WRONG: Final = (Corrupt, DataError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@app.task(name=PLAN, reads=staticmethod(request_of), **DELIVERY)
def plan(self: Task, request: Request) -> str:
    """Plan a job, or take up one that was planned before, when its table is free."""
    board = Board(settings)
    if board.report(request.job) is not None:
        raise Late("the job has ended")
    if not board.start(request):
        raise Waits("waits: another job works on the table")
    board.sent(request.job)
    try:
        step = begin(request, settings)
    except Exception as error:
        if isinstance(error, Newer) or self.request.retries + 1 < settings.max_attempts:
            raise
        log.warning("%s cannot be planned", request.job, exc_info=True)
        step = give_up(request, f"It could not be planned: {type(error).__name__}: {first_line(error)}")
    return _next(request, step)


@app.task(name=CONVERT, reads=staticmethod(partial(order_of, UnitOrder)), **_UNIT)
def convert(self: Task, order: UnitOrder) -> str:
    """Stage one unit of a conversion."""
    return _stage(self, order)


@app.task(name=COMPACT, reads=staticmethod(partial(order_of, UnitOrder)), **_UNIT)
def compact(self: Task, order: UnitOrder) -> str:
    """Stage one unit of a compaction."""
    return _stage(self, order)


@app.task(name=COMMIT, reads=staticmethod(partial(order_of, CommitOrder)), **DELIVERY)
def commit(self: Task, order: CommitOrder) -> str:
    """Commit a job's round once all of its units have ended."""
    context, board = JobContext.open(order.job, location_of(self)), Board(settings)
    request, known = asked(context, board.heads), board.report(order.job)
    try:
        step = clear_away(context, known) if known is not None else advance(context, settings)
    except Unanswered as error:
        raise Waits(f"no answer from the catalog, the sweeper will ask again: {error}") from None
    except _WRONG as error:
        if self.request.retries + 1 < settings.max_attempts:
            raise
        log.warning("%s cannot be committed", order.job, exc_info=True)
        kind = "" if isinstance(error, Corrupt) else f"{type(error).__name__}: "
        step = fail(context, f"It could not be committed: {kind}{first_line(error)}")
    if isinstance(step, Stage):  # another round: this is not the last word on the job
        raise Waits(_next(request, step))
    return _next(request, step)


@app.task(name=SWEEP)
def sweep_tables() -> str:
    """Take up jobs that lost a message."""
    taken = sweep(settings)
    return f"took up {', '.join(taken)}" if taken else "nothing was lost"


def _stage(task: Task, order: UnitOrder) -> str:
    """Stage one unit of whatever its job does, and have the round committed when it was the last."""
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

    Board(settings).keep(plan.request)
    with Lease(settings, order.job, unit_id(plan, order.unit), task.request.hostname) as lease:
        outcome = stage(context, plan, order.unit, settings, progress)
    if next(context.store.at(plan).pending(plan.units), None) is None:
        Messenger(settings).commit(order.job, plan.location)
    if isinstance(outcome, Failure):
        raise Unsuccessful(f"failed: {outcome.reason}")
    if outcome is None:
        raise _over(context)
    return _staged(plan.request.operation, outcome)


def _over(context: JobContext) -> Cancelled | Late:
    """What there is to say of a unit whose job has ended."""
    report = Board(settings).report(context.id)
    if context.store.cancelled() or (report is not None and report.status is Status.CANCELLED):
        return Cancelled("cancelled: nothing of this unit is committed")
    return Late("the job has ended")


def _staged(operation: Operation, staged: Staged) -> str:
    """What a unit has come to, in a line."""
    if operation is Operation.COMPACT:
        rows, size = sum(file.records for file in staged.data), sum(file.size for file in staged.data)
        made = f"{len(staged.inputs)} files became {len(staged.data)} with {rows} rows, {size_text(size)}"
        return f"{made}, {staged.deleted_rows} rows deleted, {staged.seconds} s"
    files = len(staged.deletes) + len(staged.vectors)
    return f"{staged.new_positions} rows in {files} delete files or vectors, {staged.seconds} s"


def _next(request: Request, step: Step) -> str:
    """Send what comes next."""
    messenger = Messenger(settings)
    match step:
        case Stage(plan, units) if units:
            Board(settings).sent(request.job, settings.visibility_timeout)
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

    Whoever dies in between is found by the conclusion, which goes when the report is posted; or by the board, where the
    job has its table until the end.
    """
    board = Board(settings)
    if board:
        board.post(report)
    else:
        _leave_on_storage(request, report)
    if store is not None:
        store.forget(request.branch)
    if (following := board.release(request)) is not None:
        Messenger(settings).plan(following)
    log.info("%s: %s", request.job, report.model_dump_json())
    told = sentence(report)
    if report.status in _BAD:
        raise Unsuccessful(told)
    if report.status is Status.CANCELLED:
        raise Cancelled(told)
    return told


def _leave_on_storage(request: Request, report: Report) -> None:
    """Without a Redis the report stays at the table for whoever asks, until the next one takes its place."""
    try:
        JobContext.open(request.job).store.write_last(report, request.branch)
    except IcefleetError as error:
        log.warning("%s has ended as %s, and its table does not keep the report: %s", request.job, report.status, error)
