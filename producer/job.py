"""A job as its owner sees it: how far it is, how it ended, and the way to stop it or take it up again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from producer.broker.leases import Holder, Leases
from producer.broker.queue import Messenger, unit_id
from producer.broker.registry import JobRegistry
from producer.common.errors import Failed, IcefleetError, Reason, Refused
from producer.common.settings import Settings
from producer.engine import local_engine
from producer.model.job import JobId, Report, Request, Status

if TYPE_CHECKING:  # what reads tables is loaded when one is read: enqueueing does without
    from pyiceberg.table import Table

    from producer.state.job_store import JobStore

_LOOKS = 10
_PAUSE = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    status: Status
    #: Units that have ended, in the round that is running.
    done: int = 0
    units: int = 0
    #: Data files that are done, of all that the round reads.
    files_done: int = 0
    files: int = 0
    #: Workers that are at units now, or were last; empty where that is not known, for want of a Redis that answers.
    holders: tuple[Holder, ...] = ()
    #: What is being done right now, such as ``day=2024-05-01: 3/7 files``; empty when that is not known here.
    detail: str = ""


class Job:
    """One job, wherever it runs. Its state is read from the table's storage and, where there is one, from the registry.

    Args:
        job: The id.
        settings: Where the fleet is.
        request: What was asked for, if it is this process that asked.
        report: How it ended, if that is known.
    """

    def __init__(
        self, job: str, settings: Settings, *, request: Request | None = None, report: Report | None = None
    ) -> None:
        self.id = job
        self.name = JobId.parse(job)
        self._settings = settings
        self._request = request
        self._report = report
        self._registry = JobRegistry(settings)
        self._leases = Leases(settings)

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    @cached_property
    def _table(self) -> Table:
        from producer.iceberg.catalog import open_table

        return open_table(self.name.catalog, self.name.table)

    @cached_property
    def _store(self) -> JobStore:
        from producer.state.job_store import JobStore, branches_of

        return JobStore(
            self._table.io, self._table.metadata.location, self.name.token, branches_of(self._table.metadata)
        )

    def progress(self) -> Progress:
        """How far the job is.

        Raises:
            Refused: nothing is known of such a job, or its table is gone.
        """
        if (report := self.report()) is not None:
            return Progress(report.status, report.units, report.units)
        try:
            plan = self._store.latest_plan()
        except IcefleetError:
            if self._registry.knows(self.id):
                return Progress(Status.QUEUED)  # the fleet will say what is wrong with the table, and post it
            raise
        if plan is None:
            return Progress(Status.QUEUED)
        ended = self._store.at(plan).outcomes(plan.units)
        done, units = len(ended), len(plan.units)
        left = [unit for unit in plan.units if unit.number not in ended]
        pending = {unit_id(plan, unit.number): (unit.number, unit.label) for unit in left}
        holders = self._leases.holders_of(self.id, pending)
        files_done = sum(unit.files for unit in plan.units if unit.number in ended)
        files_done += sum(holder.files_done for holder in holders)
        status = Status.STAGING if pending else Status.COMMITTING
        return Progress(status, done, units, files_done, sum(unit.files for unit in plan.units), holders)

    @property
    def status(self) -> Status:
        """Where the job stands."""
        return self.progress().status

    def report(self) -> Report | None:
        """How the job ended; None while it has not.

        Raises:
            Refused: nothing is known of such a job: it never was, or it changed nothing and is long over.
        """
        if self._report is None:
            self._report = self._registry.report(self.id) or self._from_storage()
        return self._report

    def result(self) -> Report:
        """How the job ended.

        Raises:
            Failed: it has not ended.
        """
        report = self.report()
        if report is None:
            raise Failed(f"{self.id} has not ended: wait for it first.")
        return report

    def wait(self, timeout: float | None = None, progress: Callable[[Progress], None] | None = None) -> Report:
        """Wait for the job's end and return its report, whatever the end is.

        Args:
            timeout: Seconds, or None to wait as long as it takes.
            progress: Called about twice a second.

        Raises:
            TimeoutError: it has not ended in time; it goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            now = self.progress()
            if progress is not None:
                progress(now)
            if now.status.ended:
                return self._posted()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} is still {now.status} after {timeout} seconds.")
            if now.status is Status.QUEUED:
                self._enqueue_if_forgotten()
            time.sleep(0.5)

    def cancel(self) -> None:
        """Stop the job: units that run withdraw what they wrote, and nothing is committed any more.

        A commit that is on its way may still happen; :meth:`wait` tells.
        """
        if self.report() is not None:
            return
        self._store.cancel()
        if not self._settings.local:
            Messenger(self._settings).commit(self.id, self._table.metadata.location)
            self._resume_planning()

    def resume(self) -> Job:
        """Take up a job that was interrupted: what is staged stays staged, and the rest is sent (or done here).

        Raises:
            Refused: nothing is left of it that could be taken up.
        """
        if self.report() is not None:
            return self
        plan = self._store.latest_plan()
        request = plan.request if plan else self._waiting()
        if request is None:
            raise Refused(Reason.UNKNOWN_JOB, f"Nothing is left of {self.id} that could be taken up: start a new job.")
        if self._settings.local:
            return Job(self.id, self._settings, request=request, report=local_engine(self._settings).run(request))
        Messenger(self._settings).plan(request)
        return self

    def _posted(self) -> Report:
        """The report as the fleet posts it right after a job's end: the history is there before it, and says less."""
        if self._registry.knows(self.id):
            for _ in range(_LOOKS):
                if (report := self._registry.report(self.id)) is not None:
                    self._report = report
                    break
                time.sleep(_PAUSE)
        return self.result()

    def _enqueue_if_forgotten(self) -> None:
        """A job that a Redis lost before it was planned is known to nobody but to who asked for it."""
        if self._request is None or self._settings.local or not self._registry or self._registry.knows(self.id):
            return
        if (
            self._store.current(self.name.operation, self._request.branch) is None
            and self._registry.enqueue(self._request) == self.id
        ):
            Messenger(self._settings).plan(self._request)

    def _resume_planning(self) -> None:
        """A job that was cancelled in the queue ends when its turn comes: let it come now."""
        if self._store.latest_plan() is None and (waiting := self._waiting()) is not None:
            Messenger(self._settings).plan(waiting)

    def _waiting(self) -> Request | None:
        return self._request or next((r for r in self._registry.next_requests() if r.job == self.id), None)

    def _from_storage(self) -> Report | None:
        try:
            plan = self._store.latest_plan()
        except IcefleetError:
            if self._request is not None or self._registry.knows(self.id):
                return None  # the fleet will say what is wrong with the table, and post it
            raise
        if plan is not None:
            return None
        if (last := self._store.last(self.name.operation, self.id)) is not None:
            return last
        from producer.iceberg.catalog import open_table
        from producer.state.commit_history import report_from_history

        fresh = open_table(self.name.catalog, self.name.table)
        if (report := report_from_history(fresh.metadata, self.name, self.id)) is not None:
            return report
        if self._request is None and not self._registry.knows(self.id):
            raise Refused(Reason.UNKNOWN_JOB, f"Nothing is known of {self.id}: it committed nothing, or it never was.")
        return self._registry.report(self.id)  # it may have ended between the first look and this one
