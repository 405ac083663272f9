"""A catalog that fails on demand, and jobs run on it step by step with the plain engine."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ForbiddenError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from producer.common.settings import Settings
from producer.model.job import Report, Request
from producer.state.commit_history import JOB
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Ended, Stage, Step, Waiting
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tests.support import plainengine, plainrewriter
from workers.model.units import ConversionResult, ConversionUnit, RewriteResult, RewriteUnit

Answer = Callable[[], CommitTableResponse]
#: What happens to a commit: gets the commit itself, to be called or not.
Fault = Callable[[Answer], CommitTableResponse]


def lose(commit: Answer) -> CommitTableResponse:
    """Somebody else was faster."""
    raise CommitFailedException("the branch has moved")


def unanswered_after(commit: Answer) -> CommitTableResponse:
    """It is committed, and the answer is lost."""
    commit()
    raise CommitStateUnknownException("the connection was closed")


def refused_after(commit: Answer) -> CommitTableResponse:
    """It is committed, repeated by a gateway, and then refused."""
    commit()
    raise CommitFailedException("the branch has moved")


def unanswered_before(commit: Answer) -> CommitTableResponse:
    """It never arrives, and nobody says so."""
    raise CommitStateUnknownException("the connection was closed")


def meanwhile(something: Callable[[], Any]) -> Fault:
    """Something else happens between the last look at the head and the commit."""

    def fault(commit: Answer) -> CommitTableResponse:
        something()
        return commit()

    return fault


class FaultyCatalog(InMemoryCatalog):
    """A catalog in memory whose commits by jobs go wrong as they are told to; those of other writers never do."""

    def __init__(self, folder: Path) -> None:
        super().__init__("default", warehouse=f"file://{folder}")
        #: What happens to the next commits; those after them succeed.
        self.faults: deque[Fault] = deque()
        #: How often the next loads of a table fail, because the catalog is away, or says that they are not allowed.
        self.unreachable = 0
        self.denied = 0
        #: Commits by jobs that were asked for.
        self.asked: list[Snapshot] = []

    def load_table(self, identifier: str | Identifier) -> Table:
        if self.unreachable > 0:
            self.unreachable -= 1
            raise ConnectionError("the catalog is away")
        if self.denied > 0:
            self.denied -= 1
            raise ForbiddenError("the token has expired")
        return super().load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        commit = super().commit_table
        for update in updates:
            if isinstance(update, AddSnapshotUpdate) and update.snapshot.summary and update.snapshot.summary[JOB]:
                self.asked.append(update.snapshot)
                if self.faults:
                    return self.faults.popleft()(lambda: commit(table, requirements, updates))
        return commit(table, requirements, updates)


def report_of(step: Step, branch: str = "main") -> Report:
    """The report of a job that has ended, now that somebody knows it."""
    assert isinstance(step, Ended)
    assert step.report is not None
    if step.store is not None:
        step.store.forget(branch)
    return step.report


class Jobs:
    """Runs jobs in this process: the very steps that a fleet takes, with the plain engine and without waiting.

    Attributes:
        staged: The units that were staged, by name, in order.
        slept: Seconds of every pause that would have been made.
        broken: Labels of units that fail while they are staged.
    """

    def __init__(self, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.catalog = catalog
        self.settings = Settings(broker_url="", board_url="")
        self.staged: list[str] = []
        self.slept: list[float] = []
        self.broken: set[int] = set()
        self._late = 0.0
        self._thread = threading.get_ident()
        real, monotonic, self._real_sleep = time.time, time.monotonic, time.sleep
        monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
        monkeypatch.setattr("tasks.operations.convert.execute.convert", self._convert)
        monkeypatch.setattr("tasks.operations.convert.execute.session", lambda *_: None)
        monkeypatch.setattr("tasks.operations.compact.execute.rewrite", self._rewrite)
        monkeypatch.setattr("tasks.operations.compact.execute.session", lambda *_: None)
        monkeypatch.setattr(time, "sleep", self._sleep)
        monkeypatch.setattr(time, "time", lambda: real() + self._late)
        monkeypatch.setattr(time, "monotonic", lambda: monotonic() + self._late)

    def _sleep(self, seconds: float) -> None:
        """Note a pause of ours; threads that libraries keep in this process sleep as ever."""
        if threading.get_ident() == self._thread:
            self.slept.append(seconds)
        else:
            self._real_sleep(seconds)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self._late += seconds

    def request(self, table: str = "db.t", **asked: Any) -> Request:
        """A new job."""
        return Request.new(table, **asked)

    def context(self, request: Request) -> JobContext:
        """A job's records, found as a worker finds them."""
        return JobContext.open(request.job)

    def stage(self, step: Stage) -> None:
        """Stage the units of a round."""
        context = JobContext.open(step.plan.request.job, step.plan.location)
        for number in step.units:
            stage(context, step.plan, number, self.settings, lambda done, of: None)

    def start(self, request: Request) -> Step:
        """Plan a job, and stage its first round if there is one."""
        step = begin(request, self.settings)
        if isinstance(step, Stage):
            self.stage(step)
        return step

    def end(self, step: Step, between: Callable[[], Any] | None = None) -> Report:
        """Take a job on from where it is to its end.

        Args:
            between: Called whenever a round is staged and not yet committed.
        """
        branch = "main" if isinstance(step, Ended) else step.plan.request.branch
        for _ in range(20):
            if isinstance(step, Ended):
                return report_of(step, branch)
            if between is not None:
                between()
            step = advance(JobContext.open(step.plan.request.job, step.plan.location), self.settings)
            if isinstance(step, Stage):
                self.stage(step)
            elif isinstance(step, Waiting):
                self.wait(60)
        raise AssertionError(f"the job does not come to its end: {step}")

    def run(self, request: Request | None = None, between: Callable[[], Any] | None = None, **asked: Any) -> Report:
        """Run a job to its end."""
        return self.end(self.start(request or self.request(**asked)), between)

    def _convert(self, unit: ConversionUnit, io: Any, session: Any, *rest: Any) -> ConversionResult:
        self._note(unit.name)
        return plainengine.convert(unit, io, session, *rest)

    def _rewrite(self, unit: RewriteUnit, io: Any, session: Any, *rest: Any) -> RewriteResult:
        self._note(unit.name)
        return plainrewriter.rewrite(unit, io, session, *rest)

    def _note(self, name: str) -> None:
        number = int(name.rsplit("-", 2)[1])
        if number in self.broken:
            raise OSError(f"unit {number} does not want to")
        self.staged.append(name)
