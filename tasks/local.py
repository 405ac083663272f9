"""The engine without a fleet: the same plan, stage and commit, one after another in the calling process."""

from __future__ import annotations

import logging
import time

from producer.board import Board
from producer.engine import Told
from producer.messages import Plan, Report, Request
from producer.settings import Settings
from tasks.convert import Progress, TryAgain, stage
from tasks.job import JobContext
from tasks.rounds import Ended, Stage, Waiting, advance, begin

log = logging.getLogger(__name__)


class LocalEngine:
    """Runs whole jobs here; registered as the entry point ``icefleet.engines: local``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def run(self, request: Request, told: Told | None = None) -> Report:
        """Run a job to its end.

        An exception leaves the job as it is: what is staged stays staged, and the job can be resumed.
        """
        told = told or (lambda done, units, detail: None)
        step = begin(request, self._settings)
        while isinstance(step, Stage | Waiting):
            context = JobContext.open(request.job, step.plan.location)
            if isinstance(step, Stage):
                self._stage(context, step.plan, step.units, told)
            step = advance(context, self._settings)
        assert isinstance(step, Ended)
        assert step.report is not None
        Board(self._settings).finish(request, step.report)
        return step.report

    def _stage(self, context: JobContext, plan: Plan, units: tuple[int, ...], told: Told) -> None:
        total = len(plan.units)
        labels = {unit.number: unit.label for unit in plan.units}
        for number in units:
            done = total - len(units) + units.index(number)

            def progress(files: int, of: int, done: int = done, label: str = labels[number]) -> None:
                told(done, total, f"{label}: {files}/{of} files")

            told(done, total, labels[number])
            self._stage_one(context, plan, number, progress)
        told(total, total, "committing")

    def _stage_one(self, context: JobContext, plan: Plan, number: int, progress: Progress) -> None:
        attempt = 0
        while True:
            try:
                stage(context, plan, number, self._settings, progress)
                return
            except TryAgain as error:
                log.warning("unit %s is tried again: %s", number, error)
                time.sleep(min(2**attempt, 30))
                attempt += 1
