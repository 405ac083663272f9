"""A job: its progress, its report, how to cancel or resume it, and the engine that runs one in the calling process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Protocol

from icefleet_main import hidden
from producer.broker.connections import connection_error
from producer.broker.leases import Holder, Leases
from producer.broker.queue import Messenger, unit_id
from producer.broker.registry import JobRegistry
from producer.common.errors import Failed, IcefleetError, Reason, Refused
from producer.common.settings import Settings
from producer.model.job import JobId, Report, Request, Status

if TYPE_CHECKING:  # loaded when a table is read: enqueueing does not need it
    from pyiceberg.table import Table

    from producer.state.job_store import JobStore

#: Called with the units that are done, all units, and a few words on the current work.
ProgressCallback = Callable[[int, int, str], None]

_REPORT_POLLS = 10
_REPORT_INTERVAL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a job."""

    status: Status
    #: Units of the current round that have ended.
    done: int = 0
    units: int = 0
    #: Data files of the current round that are done.
    files_done: int = 0
    files: int = 0
    #: The workers that hold units; empty if Redis does not answer.
    holders: tuple[Holder, ...] = ()
    #: The current work, such as ``day=2024-05-01: 3/7 files``; empty if unknown.
    detail: str = ""
    #: Why a step is tried again; None if none has failed lately.
    problem: str | None = None


class JobInterrupted(KeyboardInterrupt):
    """An interrupt from the keyboard that has cancelled a job of this process; the report says how the job ended."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"{report.job} has ended as {report.status}")
        self.report = report


class Job:
    """A job, wherever it runs. Its state is read from the table's storage and from the registry in Redis, if any.

    Args:
        job: The id.
        settings: The settings of the fleet.
        request: The request, if this process submitted it.
        report: The report, if the job is known to have ended.
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

        metadata = self._table.metadata
        return JobStore(self._table.io, metadata.location, self.name.token, branches_of(metadata))

    def progress(self) -> Progress:
        """Return the job's progress.

        Raises:
            Refused: The job is unknown, its table does not exist any more, or Redis does not answer.
        """
        with self._registry.refused():
            if (report := self.report()) is not None:
                return Progress(report.status, report.units, report.units)
            problem = self._registry.problem(self.id)
            try:
                plan = self._store.latest_plan()
            except IcefleetError:
                if self._registry.knows(self.id):
                    return Progress(Status.QUEUED, problem=problem)  # the fleet reports what is wrong with the table
                raise
            if plan is None:
                return Progress(Status.QUEUED, problem=problem)
            ended = self._store.at(plan).outcomes(plan.units)
            done, units = len(ended), len(plan.units)
            left = [unit for unit in plan.units if unit.number not in ended]
            pending = {unit_id(plan, unit.number): (unit.number, unit.label) for unit in left}
            holders = self._leases.holders_of(self.id, pending)
            files_done = sum(unit.files for unit in plan.units if unit.number in ended)
            files_done += sum(holder.files_done for holder in holders)
            status = Status.STAGING if pending else Status.COMMITTING
            files = sum(unit.files for unit in plan.units)
            return Progress(status, done, units, files_done, files, holders, problem=problem)

    @property
    def status(self) -> Status:
        """The job's status."""
        return self.progress().status

    def report(self) -> Report | None:
        """Return how the job ended, or None if it has not.

        Raises:
            Refused: The job is unknown: it never existed, or it changed nothing and its report has expired. Or Redis
                does not answer.
        """
        if self._report is None:
            with self._registry.refused():
                self._report = self._registry.report(self.id) or self._from_storage()
        return self._report

    def result(self) -> Report:
        """Return how the job ended.

        Raises:
            Failed: It has not ended.
        """
        report = self.report()
        if report is None:
            raise Failed(f"{self.id} has not ended: wait for it first.")
        return report

    def wait(self, timeout: float | None = None, progress: Callable[[Progress], None] | None = None) -> Report:
        """Wait for the job's end and return its report, even if the job failed.

        With Redis this process needs neither catalog nor storage: the fleet's report is in Redis.

        Args:
            timeout: Seconds to wait, or None for no limit.
            progress: Called about twice a second.

        Raises:
            TimeoutError: The job has not ended in time; it goes on.
            Refused: The job is unknown, or Redis does not answer.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._registry.refused():
                now = self._reachable_progress()
            if progress is not None:
                progress(now)
            if now.status.ended:
                with self._registry.refused():
                    return self._saved_report()
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} is still {now.status} after {timeout} s.")
            if now.status is Status.QUEUED:
                with self._registry.refused():
                    self._enqueue_if_lost()
            time.sleep(0.5)

    def cancel(self) -> None:
        """Cancel the job: running units delete what they wrote, and nothing more is committed.

        A commit that has begun may still happen; the report of :meth:`wait` says so.

        Raises:
            Refused: The job is unknown, or Redis does not answer: the job is cancelled if the sentence says so.
        """
        if self.report() is not None:
            return
        self._store.cancel()
        if self._settings.local:
            return
        with self._registry.refused():
            waiting = self._waiting_request() if self._store.latest_plan() is None else None
        messenger = Messenger(self._settings)
        try:
            messenger.commit(self.id, self._table.metadata.location)
            if waiting is not None:  # planned now, it ends now
                messenger.plan(waiting)
        except Exception as error:  # clients of brokers raise errors of many kinds
            problem = str(connection_error(self._settings.broker_url, error)).rstrip(".")
            sentence = f"{problem}. {self.id} is marked as cancelled all the same, and ends at the next sweep."
            raise Refused(Reason.BROKER, sentence) from error

    def resume(self) -> Job:
        """Resume an interrupted job: staged units stay staged, and the rest is sent to workers, or done here.

        Raises:
            Refused: Neither a plan nor a request of the job is left, or the broker does not answer.
        """
        if self.report() is not None:
            return self
        plan = self._store.latest_plan()
        request = plan.request if plan else self._waiting_request()
        if request is None:
            raise Refused(Reason.UNKNOWN_JOB, f"Nothing is left of {self.id} that could be taken up: start a new job.")
        if self._settings.local:
            return Job(self.id, self._settings, request=request, report=local_engine(self._settings).run(request))
        messenger = Messenger(self._settings)
        messenger.check()
        messenger.plan(request)
        return self

    def _reachable_progress(self) -> Progress:
        """Return the job's progress, or that it is queued if Redis knows it and the table cannot be read from here."""
        try:
            return self.progress()
        except Exception as error:  # clients of catalogs and storage raise errors of many kinds
            if (isinstance(error, Refused) and error.reason is Reason.BROKER) or not self._registry.knows(self.id):
                raise
            return Progress(Status.QUEUED, problem=self._registry.problem(self.id))

    def _saved_report(self) -> Report:
        """Return the report that the fleet saves right after a job's end; the table's history has less, but earlier."""
        if self._registry.knows(self.id):
            for _ in range(_REPORT_POLLS):
                if (report := self._registry.report(self.id)) is not None:
                    self._report = report
                    break
                time.sleep(_REPORT_INTERVAL)
        return self.result()

    def _enqueue_if_lost(self) -> None:
        """Enqueue the job again if Redis lost it before it was planned: only its submitter still knows it."""
        if self._request is None or self._settings.local or not self._registry or self._registry.knows(self.id):
            return
        busy = self._store.current(self.name.operation, self._request.branch) is not None
        if not busy and self._registry.enqueue(self._request) == self.id:
            Messenger(self._settings).plan(self._request)

    def _waiting_request(self) -> Request | None:
        return self._request or next((r for r in self._registry.next_requests() if r.job == self.id), None)

    def _from_storage(self) -> Report | None:
        try:
            plan = self._store.latest_plan()
        except IcefleetError:
            if self._request is not None or self._registry.knows(self.id):
                return None  # the fleet reports what is wrong with the table
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


class Engine(Protocol):
    """Runs whole jobs in the calling process."""

    def run(self, request: Request, on_progress: ProgressCallback | None = None) -> Report:
        """Run a job to its end and return its report; raise JobInterrupted if the keyboard has interrupted it."""


def local_engine(settings: Settings) -> Engine:
    """Return the engine of this process.

    Raises:
        Refused: It is not installed here, or modules of the same names hide it.
    """
    if (sentence := hidden("tasks", "workers")) is not None:
        raise Refused(Reason.CONFIGURATION, f"No broker is set, and no worker can be found here: {sentence}")
    found = entry_points(group="icefleet.engines", name="local")
    try:
        make: Callable[[Settings], Engine] = next(iter(found)).load()
    except (StopIteration, ModuleNotFoundError) as error:
        missing = f" ({error.name} is missing)" if isinstance(error, ModuleNotFoundError) else ""
        advice = "set ICEFLEET_BROKER_URL, or install icefleet[worker]"
        sentence = f"No broker is set and no worker is installed here{missing}: {advice}."
        raise Refused(Reason.CONFIGURATION, sentence) from error
    return make(settings)
