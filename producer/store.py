"""A job's records on its table's storage: who works on the table, plans, whether it was cancelled, how it has ended.

Storage is what a job's state is derived from. Records are small JSON objects below ``_icefleet/`` at the table's
location, a name that Iceberg's orphan clean-ups leave alone; all of them are gone when the job has ended.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from pyiceberg.io import FileIO

from producer.errors import Corrupt
from producer.messages import Operation, Report, Request
from producer.plans import Plan, Unit
from producer.records import Records, parallel
from producer.roundstore import RoundStore
from producer.staging import PlanNote

ROOT: Final = "_icefleet"


class JobStore:
    """The records of one job; every method is one or a few storage operations and keeps nothing in memory.

    Args:
        io: The table's file access.
        location: The table's location.
        token: The last part of the job's id.
    """

    def __init__(self, io: FileIO, location: str, token: str) -> None:
        self.io = io
        self.location = location.rstrip("/")
        self._token = token
        self._table = Records(io, f"{self.location}/{ROOT}")
        self._job = self._table.below(token)

    # -- the job -----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask everyone who works on the job to stop."""
        self._job.write("cancelled", Request(job="", table=""))

    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._job.exists("cancelled")

    def close(self) -> None:
        """Say that the job has ended: whoever still works on it withdraws what it wrote."""
        self._job.write("closing", Request(job="", table=""))

    def closed(self) -> bool:
        """Whether the job has ended, been cancelled, or is gone altogether."""
        return self.cancelled() or self.ended()

    def conclude(self, report: Report) -> None:
        """Note how the job has ended, before its records go: who dies before that is known is taken up from here."""
        self._job.write("conclusion", report)

    def conclusion(self) -> Report | None:
        """How the job has ended, until that is known elsewhere; None when nobody has come to say it all."""
        return self._job.read("conclusion", Report)

    def load_conclusion(self) -> Report | None:
        """The same; raises Corrupt when the conclusion is there and cannot be read."""
        return self._job.load("conclusion", Report)

    def concluded(self) -> bool:
        """Whether there is a conclusion, to be read or not."""
        return self._job.exists("conclusion")

    def ended(self) -> bool:
        """Whether the job is being cleaned up, or is gone altogether: nothing will be committed any more."""
        return self._job.exists("closing") or not self._job.exists("plan-0")

    # -- the table ---------------------------------------------------------------------------------------------

    def write_current(self, request: Request) -> None:
        """Note at the table which job works on it, so that a sweeper finds it when everything else is lost."""
        self._table.write(f"current-{request.operation}", request)

    def current(self, operation: Operation) -> Request | None:
        """The job that works on the table; None when nobody can tell."""
        return self._table.read(f"current-{operation}", Request)

    def load_current(self, operation: Operation) -> Request | None:
        """The job that works on the table; raises Corrupt when there is one and nobody can tell which."""
        return self._table.load(f"current-{operation}", Request)

    def write_last(self, report: Report) -> None:
        """Leave a report at the table, where there is no Redis to keep it; the next one takes its place."""
        self._table.write(f"last-{report.operation}", report)

    def last(self, operation: Operation) -> Report | None:
        """The report that was left at the table."""
        return self._table.read(f"last-{operation}", Report)

    # -- plans -------------------------------------------------------------------------------------------------

    def write_plan(self, plan: Plan, units: Iterable[Unit]) -> Plan:
        """Write one round's units and then its plan: a plan that can be read is whole.

        Returns:
            The plan that counts. A message that comes twice may have two committers plan the same round, each on
            another snapshot: units and what is staged of them lie in a folder of their own plan, so that nothing of
            the one is ever taken for the other's.
        """
        note, name = PlanNote(token=plan.token, units=len(plan.units)), f"planner-{plan.round}"
        number = self._job.append(name, note)
        parallel(self.at(plan).write_unit, units)
        if (known := self.plan(plan.round)) is not None:
            return known
        if self._job.read(f"{name}-{number}", PlanNote) != note:  # somebody was as quick, and took its place
            self._job.append(name, note)
        self._job.write(f"plan-{plan.round}", plan)
        return plan

    def plan(self, round_: int) -> Plan | None:
        """The plan of a round, or None when there is none that can be read, or none any more."""
        return self._job.read(f"plan-{round_}", Plan)

    def load_plan(self, round_: int) -> Plan | None:
        """The plan of a round; raises Corrupt when it is there and cannot be read."""
        return self._job.load(f"plan-{round_}", Plan)

    def survey(self) -> tuple[list[Plan], list[str]]:
        """All plans that can be read, and what is wrong with the others."""
        return self._job.survey("plan", Plan)

    def plans(self) -> list[Plan]:
        """The plans of all rounds, first to last."""
        found: list[Plan] = []
        while (plan := self.plan(len(found))) is not None:
            found.append(plan)
        return found

    def latest_plan(self) -> Plan | None:
        """The plan of the last round that was planned."""
        return next(reversed(self.plans()), None)

    def at(self, plan: Plan) -> RoundStore:
        """What lies in the folder of a plan."""
        return self._folder(plan.round, plan.token)

    def folders(self) -> list[tuple[RoundStore, int]]:
        """The folders of all plans that were ever begun, each with its number of units; those that count among them."""
        found = [(round_, note) for round_ in range(self._rounds()) for note in self._planners(round_)]
        return [(self._folder(round_, note.token), note.units) for round_, note in found]

    def _planners(self, round_: int) -> list[PlanNote]:
        """Who has begun to plan a round, each once."""
        notes, _ = self._job.survey(f"planner-{round_}", PlanNote)
        plan = self.plan(round_)
        own = [PlanNote(token=plan.token, units=len(plan.units))] if plan is not None else []
        return list({note.token: note for note in [*notes, *own]}.values())

    def _rounds(self) -> int:
        """How many rounds were begun."""
        job = self._job
        return next(n for n in itertools.count() if not job.exists(f"planner-{n}-0") and not job.exists(f"plan-{n}"))

    def _folder(self, round_: int, token: str) -> RoundStore:
        return RoundStore(self._job.below(f"{round_}-{token}"))

    # -- the end -----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete every record but the conclusion, the plans last: while one can be read, a clean-up can be taken up."""
        rounds = self._rounds()
        for folder, units in reversed(self.folders()):
            folder.clear(units)
        for round_ in reversed(range(rounds)):
            for number in reversed(range(self._job.count(f"planner-{round_}"))):
                self._job.delete(f"planner-{round_}-{number}")
            self._job.delete(f"plan-{round_}")
        self._job.delete("cancelled")
        self._job.delete("closing")

    def forget(self) -> None:
        """Delete the conclusion, when it is known elsewhere; nothing tells of the job here any more."""
        self._job.delete("conclusion")
        for operation in Operation:
            try:
                current = self.load_current(operation)
            except Corrupt:  # of no use to anybody
                self._table.delete(f"current-{operation}")
                continue
            if current is not None and current.token == self._token:
                self._table.delete(f"current-{operation}")
        self.remove_folders()

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
