"""The tasks of the Celery application: a thin one for each step of a job."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Final

from celery import Task
from rich.filesize import decimal as bytes_text

from producer.board import Board
from producer.errors import Corrupt, IcefleetError, Newer
from producer.messages import Failure, Operation, Report, Request
from producer.messenger import COMMIT, COMPACT, CONVERT, PLAN, SWEEP, Messenger
from producer.orders import CommitOrder, UnitOrder, order_of, request_of
from producer.staging import Staged
from producer.store import JobStore
from tasks.application import app, settings
from tasks.commit import Unanswered
from tasks.delivery import DELIVERY, location_of
from tasks.drain import drain
from tasks.ending import asked, clear_away, fail, give_up
from tasks.job import JobContext
from tasks.quiet import QuietTask
from tasks.reports import sentence
from tasks.rounds import advance, begin
from tasks.staging import first_line, stage
from tasks.steps import Ended, Stage, Step, Waiting
from tasks.sweep import sweep
from workers.errors import DataError

__all__ = ["app"]

log = logging.getLogger(__name__)

drain(settings)


#: What data is to blame for, records among it, and what will be the same next time.
_WRONG: Final = (Corrupt, DataError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@app.task(name=PLAN, reads=staticmethod(request_of), **DELIVERY)
def plan(self: Task, request: Request) -> str:
    """Plan a job, or take up one that was planned before, when its table is free."""
    board = Board(settings)
    if board.report(request.job) is not None:
        return "the job has ended"
    if not board.start(request):
        return "waits: another job works on the table"
    board.sent(request.job)
    try:
        step = begin(request, settings)
    except Exception as error:
        if isinstance(error, Newer) or self.request.retries + 1 < settings.max_attempts:
            raise
        log.warning("%s cannot be planned", request.job, exc_info=True)
        step = give_up(request, f"It could not be planned: {type(error).__name__}: {first_line(error)}")
    return _next(request, step)


@app.task(name=CONVERT, reads=staticmethod(partial(order_of, UnitOrder)), **DELIVERY)
def convert(self: Task, order: UnitOrder) -> str:
    """Stage one unit of a conversion."""
    return _stage(self, order)


@app.task(name=COMPACT, reads=staticmethod(partial(order_of, UnitOrder)), **DELIVERY)
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
        return f"no answer from the catalog, the sweeper will ask again: {error}"
    except _WRONG as error:
        if self.request.retries + 1 < settings.max_attempts:
            raise
        log.warning("%s cannot be committed", order.job, exc_info=True)
        kind = "" if isinstance(error, Corrupt) else f"{type(error).__name__}: "
        step = fail(context, f"It could not be committed: {kind}{first_line(error)}")
    return _next(request, step)


@app.task(name=SWEEP, base=QuietTask, bind=True)
def sweep_tables(self: QuietTask) -> str:
    """Take up jobs that lost a message."""
    started = time.time()
    taken = sweep(settings)
    return self.found(f"took up {', '.join(taken)}", started) if taken else "nothing was lost"


def _stage(task: Task, order: UnitOrder) -> str:
    """Stage one unit of whatever its job does, and have the round committed when it was the last."""
    context = JobContext.open(order.job, location_of(task))
    try:
        plan = context.store.load_plan(order.round)
    except Corrupt as error:
        Messenger(settings).commit(order.job, context.store.location)  # it ends the job, or plans the round again
        return f"failed: {error}"
    if plan is None:
        return "the job has ended"

    def progress(done: int, files: int) -> None:
        percent = 100 * done // max(files, 1)
        task.send_event("task-progress", result=f"{percent}% {done}/{files} files")

    Board(settings).keep(plan.request)
    outcome = stage(context, plan, order.unit, settings, progress)
    if next(context.store.at(plan).pending(plan.units), None) is None:
        Messenger(settings).commit(order.job, plan.location)
    if isinstance(outcome, Failure):
        return f"failed: {outcome.reason}"
    return _staged(plan.request.operation, outcome) if isinstance(outcome, Staged) else "the job has ended"


def _staged(operation: Operation, staged: Staged) -> str:
    """What a unit has come to, in a line."""
    if operation is Operation.COMPACT:
        rows, size = sum(file.records for file in staged.data), sum(file.size for file in staged.data)
        made = f"{len(staged.inputs)} files became {len(staged.data)} with {rows} rows, {bytes_text(size)}"
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
            return "waits for its units"
        case Ended(None):
            return "the job has ended"
        case Ended(report, store) if report is not None:
            return _finish(request, report, store)
    raise AssertionError(step)


def _finish(request: Request, report: Report, store: JobStore | None) -> str:
    """Post the report, and let the next job have the table.

    Whoever dies in between is found by the conclusion, which goes when the report is posted; or by the board, where the
    job has its table until the end.
    """
    board = Board(settings)
    if board:
        board.post(report)
    else:
        _leave_on_storage(request, report)
    if store is not None:
        store.forget()
    if (following := board.release(request)) is not None:
        Messenger(settings).plan(following)
    log.info("%s: %s", request.job, report.model_dump_json())
    return sentence(report)


def _leave_on_storage(request: Request, report: Report) -> None:
    """Without a Redis the report stays at the table for whoever asks, until the next one takes its place."""
    try:
        JobContext.open(request.job).store.write_last(report)
    except IcefleetError as error:
        log.warning("%s has ended as %s, and its table does not keep the report: %s", request.job, report.status, error)
