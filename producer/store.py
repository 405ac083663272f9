"""A job's records on its table's storage: plan, units, attempts, staged, failed, cancelled.

Storage is what a job's state is derived from. Records are small JSON objects below ``_icefleet/`` at the table's
location, a name that Iceberg's orphan clean-ups leave alone; all of them are gone when the job has ended.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from pydantic import ValidationError
from pyiceberg.io import FileIO

from producer.messages import Failure, Operation, Report, Request, Value
from producer.plans import Plan, Unit, UnitHeader
from producer.staging import Attempt, CommitNote, Staged

V = TypeVar("V", bound=Value)
N = TypeVar("N", Attempt, CommitNote)
A = TypeVar("A")
B = TypeVar("B")

ROOT = "_icefleet"
_PROBES = 16
_LOOKS = 5
_PAUSE = 0.1


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
        self._base = f"{self.location}/{ROOT}/{token}"

    # -- the job -----------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """Ask everyone who works on the job to stop."""
        self._write("cancelled", Request(job="", table=""))

    def cancelled(self) -> bool:
        """Whether somebody asked to stop."""
        return self._exists("cancelled")

    def close(self) -> None:
        """Say that the job has ended: whoever still works on it withdraws what it wrote."""
        self._write("closing", Request(job="", table=""))

    def closed(self) -> bool:
        """Whether the job has ended, been cancelled, or is gone altogether."""
        return self.cancelled() or self.ended()

    def conclude(self, report: Report) -> None:
        """Note how the job has ended, before its records go: a clean-up that dies is taken up from here."""
        self._write("conclusion", report)

    def conclusion(self) -> Report | None:
        """How the job has ended, while it is being cleaned up."""
        return self._read("conclusion", Report)

    def ended(self) -> bool:
        """Whether the job is being cleaned up, or is gone altogether: nothing will be committed any more."""
        return self._exists("closing") or not self._exists("0/plan")

    # -- the table ---------------------------------------------------------------------------------------------

    def write_current(self, request: Request) -> None:
        """Note at the table which job works on it, so that a sweeper finds it when everything else is lost."""
        self._write(f"../current-{request.operation}", request)

    def current(self, operation: Operation) -> Request | None:
        """The job that works on the table."""
        return self._read(f"../current-{operation}", Request)

    def write_last(self, report: Report) -> None:
        """Leave a report at the table, where there is no Redis to keep it; the next one takes its place."""
        self._write(f"../last-{report.operation}", report)

    def last(self, operation: Operation) -> Report | None:
        """The report that was left at the table."""
        return self._read(f"../last-{operation}", Report)

    # -- plan and units ----------------------------------------------------------------------------------------

    def write_plan(self, plan: Plan, units: Iterable[Unit]) -> None:
        """Write one round's units and then its plan: a plan that can be read is whole."""
        parallel(lambda unit: self._write(f"{plan.round}/unit-{unit.header.number}", unit), units)
        self._write(f"{plan.round}/plan", plan)

    def plan(self, round_: int) -> Plan | None:
        """The plan of a round, or None when there is none, or none any more."""
        return self._read(f"{round_}/plan", Plan)

    def plans(self) -> list[Plan]:
        """The plans of all rounds, first to last."""
        found: list[Plan] = []
        while (plan := self.plan(len(found))) is not None:
            found.append(plan)
        return found

    def latest_plan(self) -> Plan | None:
        """The plan of the last round that was planned."""
        return next(reversed(self.plans()), None)

    def unit(self, round_: int, number: int) -> Unit | None:
        """One unit with its files."""
        return self._read(f"{round_}/unit-{number}", Unit)

    # -- attempts ----------------------------------------------------------------------------------------------

    def claim(self, round_: int, attempt: Attempt) -> bool:
        """Note an attempt, before it writes anything else; False when another one has taken its number."""
        return self._claim(f"{round_}/attempt-{attempt.unit}-{attempt.number}", attempt)

    def note_attempt(self, round_: int, attempt: Attempt) -> None:
        """Note what an attempt is about to write, before it writes it."""
        self._write(f"{round_}/attempt-{attempt.unit}-{attempt.number}", attempt)

    def journal(self, round_: int, attempt: Attempt) -> str:
        """Where an attempt notes the paths that it cannot tell before it writes to them."""
        return f"{self._base}/{round_}/journal-{attempt.unit}-{attempt.token}"

    def attempts(self, round_: int, unit: int) -> list[Attempt]:
        """All attempts at a unit, first to last."""
        found: list[Attempt] = []
        while (attempt := self._read(f"{round_}/attempt-{unit}-{len(found)}", Attempt)) is not None:
            found.append(attempt)
        return found

    def retract(self, round_: int, attempt: Attempt, *, forget: bool) -> None:
        """Take back what an attempt staged; ``forget`` gives its number free as well."""
        self._delete(f"{round_}/staged-{attempt.unit}-{attempt.number}")
        if forget:
            self._delete(f"{round_}/attempt-{attempt.unit}-{attempt.number}")

    def write_staged(self, round_: int, staged: Staged) -> None:
        """Say that a unit is staged; the last thing that an attempt writes."""
        self._write(f"{round_}/staged-{staged.unit}-{staged.attempt}", staged)

    def staged_by(self, round_: int, attempt: Attempt) -> Staged | None:
        """What one attempt has staged; None when it did not come to its end."""
        return self._read(f"{round_}/staged-{attempt.unit}-{attempt.number}", Staged)

    def staged(self, round_: int, unit: int) -> Staged | None:
        """What the first attempt at a unit that came to its end has staged."""
        number = 0
        while (staged := self._read(f"{round_}/staged-{unit}-{number}", Staged)) is None:
            if not self._exists(f"{round_}/attempt-{unit}-{number}"):
                return None
            number += 1
        return staged

    def write_failed(self, round_: int, failure: Failure) -> None:
        """Say that a unit has failed for good."""
        self._write(f"{round_}/failed-{failure.unit}", failure)

    def retract_failed(self, round_: int, failure: Failure) -> None:
        """Take back that a unit has failed."""
        self._delete(f"{round_}/failed-{failure.unit}")

    def failed(self, round_: int, unit: int) -> Failure | None:
        """Why a unit has failed for good."""
        return self._read(f"{round_}/failed-{unit}", Failure)

    def outcome(self, round_: int, unit: int) -> Staged | Failure | None:
        """How a unit ended; None while it has not."""
        return self.staged(round_, unit) or self.failed(round_, unit)

    def outcomes(self, plan: Plan) -> dict[int, Staged | Failure]:
        """How the units that have ended ended, by number; refused ones count as failed."""
        found = parallel(lambda unit: refusal(unit) or self.outcome(plan.round, unit.number), plan.units)
        return {unit.number: outcome for unit, outcome in zip(plan.units, found, strict=True) if outcome is not None}

    def pending(self, plan: Plan) -> Iterator[int]:
        """Units that have not ended, the last one first: while a job runs, the first look usually finds one."""
        for unit in reversed(plan.units):
            if unit.refused is None and self.outcome(plan.round, unit.number) is None:
                yield unit.number

    # -- commits -----------------------------------------------------------------------------------------------

    def claim_commit(self, round_: int, note: CommitNote) -> int:
        """Note a commit, before it writes anything; returns the number that it is noted under."""
        number = 0
        while not self._claim(f"{round_}/commit-{number}", note):
            number += 1
        return number

    def note_commit(self, round_: int, number: int, note: CommitNote) -> None:
        """Note how a commit goes on."""
        self._write(f"{round_}/commit-{number}", note)

    def forget_commit(self, round_: int, number: int) -> None:
        """Take a note back that came after the job's end."""
        self._delete(f"{round_}/commit-{number}")

    def commits(self, round_: int) -> list[CommitNote]:
        """All commits of a round that were begun."""
        # The writer of one that is not whole died over it: it commits nothing any more.
        notes = (self._read_whole(f"{round_}/commit-{n}", CommitNote) for n in range(self._commits(round_)))
        return [note for note in notes if note is not None]

    def _commits(self, round_: int) -> int:
        return next(n for n in itertools.count() if not self._exists(f"{round_}/commit-{n}"))

    # -- the end -----------------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Delete every record, the plans last: while a plan can be read, a clean-up can be taken up again."""
        plans = self.plans()
        for plan in reversed(plans):
            parallel(partial(self._clear_unit, plan.round), plan.units)
            for number in reversed(range(self._commits(plan.round))):
                self.forget_commit(plan.round, number)
            self._delete(f"{plan.round}/plan")
        self._delete("cancelled")
        self._delete("closing")
        self._delete("conclusion")
        for operation in Operation:
            if (current := self.current(operation)) is not None and current.token == self._token:
                self._delete(f"../current-{operation}")
        self.remove_folders()

    def _clear_unit(self, round_: int, unit: UnitHeader) -> None:
        for attempt in reversed(self.attempts(round_, unit.number)):  # the first one last: it leads to the others
            self._delete(f"{round_}/staged-{unit.number}-{attempt.number}")
            self._delete(f"{round_}/attempt-{unit.number}-{attempt.number}")
        self._delete(f"{round_}/failed-{unit.number}")
        self._delete(f"{round_}/unit-{unit.number}")

    def remove_folders(self) -> None:
        """Remove the job's folders where they are empty: local disks keep them, object stores have none."""
        if not self._base.startswith(("file:", "/")):
            return
        local = self._base.removeprefix("file://").removeprefix("file:")
        with suppress(OSError):  # not empty: another job's, or a record that is being written
            for entry in os.scandir(local):
                os.rmdir(entry)
            os.rmdir(local)
            os.rmdir(os.path.dirname(local))

    def _path(self, name: str) -> str:
        folder = f"{self.location}/{ROOT}" if name.startswith("../") else self._base
        return f"{folder}/{name.removeprefix('../')}.json"

    def _write(self, name: str, value: Value) -> None:
        with self.io.new_output(self._path(name)).create(overwrite=True) as stream:
            stream.write(value.model_dump_json().encode())

    def _read(self, name: str, kind: type[V]) -> V | None:
        try:
            with self.io.new_input(self._path(name)).open(seekable=False) as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":
                return None  # disks show a file before all of it is written, or when its writer died; stores do not
            raise

    def _read_whole(self, name: str, kind: type[V]) -> V | None:
        """Look again when a record is there and is not whole: it is being written, or its writer died while it was."""
        for _ in range(_LOOKS):
            if (value := self._read(name, kind)) is not None or not self._exists(name):
                return value
            time.sleep(_PAUSE)
        return None

    def _claim(self, name: str, value: N) -> bool:
        """Write a record under a name that nobody has; False when somebody has it, or is as quick."""
        if self._read_whole(name, type(value)) is not None:
            return False
        self._write(name, value)
        written = self._read(name, type(value))
        return written is not None and written.token == value.token

    def _exists(self, name: str) -> bool:
        return self.io.new_input(self._path(name)).exists()

    def _delete(self, name: str) -> None:
        _delete_quietly(self.io, self._path(name))


def parallel(function: Callable[[A], B], values: Iterable[A]) -> list[B]:
    """``function`` of each value, in order; many at a time, since storage answers late but in parallel."""
    with ThreadPoolExecutor(_PROBES) as pool:
        return list(pool.map(function, values))


def refusal(unit: UnitHeader) -> Failure | None:
    """The failure of a unit that the plan refuses; None for one that is worked on."""
    return Failure(unit=unit.number, partition=unit.label, reason=unit.refused) if unit.refused else None


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files, of which some may never have been written."""
    parallel(partial(_delete_quietly, io), paths)


def _delete_quietly(io: FileIO, path: str) -> None:
    with suppress(FileNotFoundError):
        io.delete(path)
