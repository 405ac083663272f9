"""The engine without a fleet: plan, stage and commit, one after another in the calling process."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from tenacity import Retrying, before_sleep_log, retry_if_exception_type, stop_after_delay, wait_random_exponential

from producer.broker.registry import JobRegistry
from producer.common.errors import Corrupt, Failed
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.job import Job, JobInterrupted, ProgressCallback
from producer.model.job import Report, Request, StorageRequests
from producer.model.plan import Plan
from producer.storage.concurrency import limit_requests
from producer.storage.requests import COUNTS
from tasks.job.context import JobContext
from tasks.lifecycle.ending import fail_job, post_report
from tasks.lifecycle.outcomes import Stage, Waiting
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.messaging.retry_policy import RetryPolicy, TryAgain

log = logging.getLogger(__name__)

#: Seconds between two checks whether another process has ended its work on the job.
_PAUSE = 0.5


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM end this process by an exception, so that scratch space and half-written files are deleted.

    An application that handles the signal itself keeps its handler.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the tidying up
    raise SystemExit(128 + number)


class _CallbackFailed(BaseException):
    """The caller's own function has raised the error that this is made of; an error of the unit is tried again."""


class LocalEngine:
    """Runs whole jobs here; registered as the entry point ``icefleet.engines: local``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        limit_requests(settings.storage_requests)

    @_terminable()
    def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
        """Run a job to its end.

        Any other exception leaves the job as it is: staged units stay staged, and the job can be resumed.

        Raises:
            JobInterrupted: An interrupt from the keyboard has cancelled the job, and the job has ended.
            Failed: Another process works on the same job and has not ended it for ``give_up_hours``, or has ended it
                without a report that is kept.
        """
        COUNTS.take()  # what this process has requested before was not for the job
        step = begin(request, self._settings)
        waiting: float | None = None
        interrupted = False
        while isinstance(step, Stage | Waiting):
            context = JobContext.open(request.job, step.plan.location)
            try:
                if isinstance(step, Stage):
                    waiting = None
                    self._stage(context, step.plan, step.units, on_progress or (lambda done, units, detail: None))
                else:
                    waiting = waiting or time.time()
                    self._wait(request, waiting)
            except KeyboardInterrupt:
                context.store.cancel()
                interrupted = True
            except _CallbackFailed as failed:
                raise failed.args[0] from None
            try:
                step = advance(context, self._settings)
            except Corrupt as error:
                step = fail_job(context, str(error))
        if step.report is not None:
            post_report(request, step, JobRegistry(self._settings))
        report = step.report or self._report_of_other(request)
        report = report.model_copy(update={"storage": StorageRequests.of(COUNTS.take())})
        if interrupted:
            raise JobInterrupted(report)
        return report

    def _report_of_other(self, request: Request) -> Report:
        """Return the report of a job that another process has ended; raise Failed if there is none."""
        # The other process may be between its clean-up and its report.
        conclusion = JobContext.open(request.job).conclusion()
        report = conclusion or Job(request.job, self._settings, request=request).report()
        if report is None:
            sentence = "and its report is not kept: the table's history has no snapshot of it"
            raise Failed(f"Another process has ended {request.job}, {sentence}.")
        return report

    def _wait(self, request: Request, since: float) -> None:
        """Pause while another process works on the same job; raise Failed after as long as a job waits for anything."""
        if time.time() - since >= RetryPolicy.of(self._settings).max_seconds:
            hours = count_text(self._settings.give_up_hours, "hour")
            raise Failed(
                f"{request.job} waits for units or a commit of another process, which have not ended for {hours}: "
                "see whether it still runs, then resume or cancel the job."
            )
        time.sleep(_PAUSE)

    def _stage(self, context: JobContext, plan: Plan, units: tuple[int, ...], on_progress: ProgressCallback) -> None:
        total = len(plan.units)
        labels = {unit.number: unit.label for unit in plan.units}
        retrying = Retrying(
            retry=retry_if_exception_type(TryAgain),
            stop=stop_after_delay(RetryPolicy.of(self._settings).max_seconds),
            wait=wait_random_exponential(max=30),
            reraise=True,
            before_sleep=before_sleep_log(log, logging.WARNING),
        )
        for done, number in enumerate(units, total - len(units)):

            def progress(files: int, of: int, done: int = done, label: str = labels[number]) -> None:
                try:
                    on_progress(done, total, f"{label}: {files}/{of} files")
                except Exception as error:
                    raise _CallbackFailed(error) from error

            on_progress(done, total, labels[number])
            retrying(stage, context, plan, number, self._settings, progress)
        on_progress(total, total, "committing")
