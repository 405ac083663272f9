"""A job's records on its table's storage: which job works on the table, plans, its cancellation, how it ended.

A job's state is derived from storage. Records are small JSON objects below ``_icefleet/`` at the table's location, a
name that Iceberg's orphan clean-ups leave alone; all of them are deleted when the job has ended.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
from functools import partial
from itertools import product
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType

from producer.common.errors import Corrupt, IcefleetError, Newer
from producer.model.job import Operation, Report, Request
from producer.model.plan import Plan, Unit
from producer.model.staged import PlanNote
from producer.state.records import Records
from producer.state.round_store import RoundStore
from producer.storage.files import delete_files, map_parallel, start

ROOT: Final = "_icefleet"


class JobStore:
    """The records of one job; each method takes one or a few storage operations, and nothing is cached.

    ``token`` is the last part of the job's id. The job is looked for at the records of these branches of the table.
    """

    def __init__(self, io: FileIO, location: str, token: str, branches: Iterable[str] = (MAIN_BRANCH,)) -> None:
        self.io = io
        self.location = location.rstrip("/")
        self.branches = tuple(dict.fromkeys([MAIN_BRANCH, *branches]))
        self._token = token
        self._table = Records(io, f"{self.location}/{ROOT}")
        self._job = self._table.subfolder(token)

    def snapshot(self, *kinds: str) -> JobStore:
        """Return the job's own records as they are now; on object stores those of these kinds are read at once."""
        store = copy(self)
        store._job = self._job.deep_snapshot(kinds)
        return store

    def cancel(self) -> None:
        """Ask every process that works on the job to stop."""
        self._job.write("cancelled", Request(job="", table=""))

    def is_cancelled(self) -> bool:
        """Return whether the job was cancelled."""
        return self._job.exists("cancelled")

    def close(self) -> None:
        """Record that nothing more is committed: workers that are still busy delete what they wrote."""
        self._job.write("closing", Request(job="", table=""))

    def is_closed(self) -> bool:
        """Return whether the job is closed or its records are deleted: nothing more is committed."""
        job = self._job.snapshot()
        return job.exists("closing") or not job.exists("plan-0")

    def is_stopped(self) -> bool:
        """Return whether no process works on the job any more: it is cancelled, closed, or its records are deleted."""
        job = self._job.snapshot()
        return job.exists("cancelled") or job.exists("closing") or not job.exists("plan-0")

    def conclude(self, report: Report) -> None:
        """Record the job's report before its records are deleted; an interrupted clean-up goes on from it."""
        self._job.write("conclusion", report)

    def conclusion(self) -> Report | None:
        """Return the job's report until it is posted, or None if it is missing or unreadable."""
        return self._job.read("conclusion", Report)

    def load_conclusion(self) -> Report | None:
        """Return the job's report, or None if it is missing; an unreadable one raises Corrupt."""
        return self._job.load("conclusion", Report)

    def has_conclusion(self) -> bool:
        """Return whether there is a conclusion, readable or not."""
        return self._job.exists("conclusion")

    def write_current(self, request: Request) -> None:
        """Record at the table which job works on a branch, so that a sweeper finds it if all messages are lost."""
        name = _branch_record("current", request.operation, MAIN_BRANCH)
        if request.branch == MAIN_BRANCH:
            # A version with one record for the whole table may have left it for a job on another branch.
            older = self._table.read(name, Request)
            if older is not None and older.branch != MAIN_BRANCH:
                self._table.write(_branch_record("current", older.operation, older.branch), older)
        self._table.write(_branch_record("current", request.operation, request.branch), request)

    def current(self, operation: Operation, branch: str = MAIN_BRANCH) -> Request | None:
        """Return the job that works on a branch, or None if that is unknown."""
        own = self._table.read(_branch_record("current", operation, branch), Request)
        if own is not None or branch == MAIN_BRANCH:
            return own
        shared = self._table.read(_branch_record("current", operation, MAIN_BRANCH), Request)
        return shared if shared is not None and shared.branch == branch else None

    def currents(self, operation: Operation) -> tuple[list[Request], list[IcefleetError]]:
        """Return the jobs that work on the branches, and the errors of unreadable records."""

        def load(branch: str) -> Request | IcefleetError | None:
            try:
                return self._table.load(_branch_record("current", operation, branch), Request)
            except (Corrupt, Newer) as error:
                return error

        found = map_parallel(load, self.branches)
        requests = {request.job: request for request in found if isinstance(request, Request)}
        return list(requests.values()), [error for error in found if isinstance(error, IcefleetError)]

    def request_of(self, operation: Operation, job: str) -> Request | None:
        """Return the request of a job that works on one of the branches, or None if it is unknown."""
        return next((request for request in self.currents(operation)[0] if request.job == job), None)

    def write_last(self, report: Report, branch: str = MAIN_BRANCH) -> None:
        """Write a report at the table, where there is no Redis; the branch's next report replaces it."""
        self._table.write(_branch_record("last", report.operation, branch), report)

    def last(self, operation: Operation, job: str | None = None) -> Report | None:
        """Return the report at the table of a job, by default of any, or None."""
        found = (self._table.read(_branch_record("last", operation, branch), Report) for branch in self.branches)
        return next((report for report in found if report is not None and job in (None, report.job)), None)

    def write_plan(self, plan: Plan, units: Iterable[Unit]) -> Plan:
        """Write one round's units and then its plan: a readable plan is complete.

        Returns:
            The plan that counts. If a message comes twice, two committers may plan the same round, each on another
            snapshot: the units of a plan, and what is staged of them, lie in a folder of that plan.
        """
        note, name = PlanNote(token=plan.token, units=len(plan.units)), f"planner-{plan.round}"
        number = self._job.append(name, note)
        map_parallel(self.at(plan).write_unit, units)
        noted = start(partial(self._job.read, f"{name}-{number}", PlanNote))
        if (known := self.plan(plan.round)) is not None:
            return known
        if noted.result() != note:  # another process took the number
            self._job.append(name, note)
        self._job.write(f"plan-{plan.round}", plan)
        return plan

    def plan(self, round_: int) -> Plan | None:
        """Return the plan of a round, or None if it is missing or unreadable."""
        return self._job.read(f"plan-{round_}", Plan)

    def load_plan(self, round_: int) -> Plan | None:
        """Return the plan of a round, or None if it is missing; an unreadable one raises Corrupt."""
        return self._job.load(f"plan-{round_}", Plan)

    def all_plans(self) -> tuple[list[Plan], list[str]]:
        """Return the readable plans, and the errors of the others."""
        return self._job.read_all("plan", Plan)

    def plans(self) -> list[Plan]:
        """Return the plans of all rounds, in order, up to the first unreadable one."""
        found: list[Plan] = []
        while (plan := self.plan(len(found))) is not None:
            found.append(plan)
        return found

    def latest_plan(self) -> Plan | None:
        """Return the plan of the last round, or None."""
        return next(reversed(self.plans()), None)

    def at(self, plan: Plan) -> RoundStore:
        """Return the records of a plan."""
        return self._folder(plan.round, plan.token)

    def folders(self) -> list[tuple[RoundStore, int]]:
        """Return the records of every plan that began, also of those that do not count, with their units."""
        found = []
        for round_ in range(self._rounds()):
            units = {note.token: note.units for note in self._job.read_all(f"planner-{round_}", PlanNote)[0]}
            if (plan := self.plan(round_)) is not None:
                units[plan.token] = len(plan.units)
            found += [(self._folder(round_, token), count) for token, count in units.items()]
        return found

    def _rounds(self) -> int:
        job = self._job
        return next(n for n in itertools.count() if not job.exists(f"planner-{n}-0") and not job.exists(f"plan-{n}"))

    def _folder(self, round_: int, token: str) -> RoundStore:
        return RoundStore(self._job.subfolder(f"{round_}-{token}"))

    def clear(self) -> None:
        """Delete every record but the conclusion; an interrupted clean-up goes on.

        Where records cannot be listed, plans go last, because they lead to the others.
        """
        if (listed := self.snapshot()._job.listed) is not None:
            last = {self._job.path(name) for name in ("cancelled", "closing")}  # nobody works on a plan that is left
            delete_files(self.io, listed - last - {self._job.path("conclusion")})
            delete_files(self.io, listed & last)
            return
        rounds = self._rounds()
        for folder, units in reversed(self.folders()):
            folder.clear(units)
        for round_ in reversed(range(rounds)):
            for number in reversed(range(self._job.count(f"planner-{round_}"))):
                self._job.delete(f"planner-{round_}-{number}")
            self._job.delete(f"plan-{round_}")
        self._job.delete("cancelled")
        self._job.delete("closing")

    def forget(self, branch: str = MAIN_BRANCH) -> None:
        """Delete the conclusion, which is posted: no record of the job is left.

        The job's branch may have been dropped since.
        """
        posted = start(partial(self._job.delete, "conclusion"))
        currents = list(product(Operation, dict.fromkeys([*self.branches, branch])))
        forgotten = map_parallel(partial(self._is_forgotten, branch), currents)
        posted.result()  # before the records that lead to it
        for (operation, of_branch), own in zip(currents, forgotten, strict=True):
            if own:
                self._table.delete(_branch_record("current", operation, of_branch))
        self.remove_folders()

    def _is_forgotten(self, job_branch: str, operation_branch: tuple[Operation, str]) -> bool:
        """Return whether the record of a branch is the job's, or one of its branch that no process can use."""
        try:
            current = self._table.load(_branch_record("current", *operation_branch), Request)
        except Corrupt:
            return operation_branch[1] == job_branch
        return current is not None and current.token == self._token

    def remove_folders(self) -> None:
        """Remove the job's folders where they are empty: local disks keep them, object stores have none."""
        base = self._job.base
        if not base.startswith(("file:", "/")):
            return
        local = base.removeprefix("file://").removeprefix("file:")
        with suppress(OSError):  # not empty: another job's, or a record that is being written
            for entry in os.scandir(local):
                os.rmdir(entry)
            os.rmdir(local)
            os.rmdir(os.path.dirname(local))


def branches_of(metadata: TableMetadata) -> list[str]:
    """Return the names of a table's branches."""
    return [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]


def _branch_record(kind: str, operation: Operation, branch: str) -> str:
    """Return the name of a branch's record; main has the name from when a table had one record.

    Branches may have any name, of any length, and storage may ignore case: a digest tells them apart.
    """
    name = f"{kind}-{operation}"
    if branch == MAIN_BRANCH:
        return name
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", branch)[:40].strip("-")
    return "-".join([name, *([readable] if readable else []), hashlib.sha256(branch.encode()).hexdigest()[:16]])
