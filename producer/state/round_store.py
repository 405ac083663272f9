"""The records of one plan: its units, attempts at them, what was staged, what failed, commits that began."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from producer.common.errors import Corrupt
from producer.model.job import Failure
from producer.model.plan import Unit, UnitHeader
from producer.model.staged import Attempt, CommitNote, Staged
from producer.state.records import Records
from producer.storage.files import delete_files, map_parallel

#: A listing has 1,000 names a page, about three for each unit.
_LISTED_UNITS: Final = 600


@dataclass(frozen=True, slots=True)
class RoundStore:
    """The records in the folder of one plan; each method takes one or a few storage operations."""

    records: Records

    def snapshot(self, units: int = 0) -> RoundStore:
        """Return the records as they are now; without a listing where a plan has so many units that it costs more."""
        return RoundStore(self.records.snapshot()) if units <= _LISTED_UNITS and not self.records.deep else self

    def write_unit(self, unit: Unit) -> None:
        """Write a unit with its files."""
        self.records.write(f"unit-{unit.header.number}", unit)

    def unit(self, number: int) -> Unit | None:
        """Return a unit with its files, or None if it is missing; an unreadable one raises Corrupt."""
        return self.records.load(f"unit-{number}", Unit)

    def claim_attempt(self, attempt: Attempt) -> bool:
        """Record an attempt before it writes anything else; return False if another attempt has its number."""
        return self.records.claim(_attempt(attempt), attempt)

    def update_attempt(self, attempt: Attempt) -> None:
        """Record what an attempt will write, before it does."""
        self.records.write(_attempt(attempt), attempt)

    def is_taken_over(self, attempt: Attempt) -> bool:
        """Return whether another attempt has the number of this one.

        Storage has no atomic claim: of two workers that begin at the same moment, both may get a number. The last one
        that writes its record has it.
        """
        written = self.records.read(_attempt(attempt), Attempt)
        return written is not None and written.token != attempt.token

    def journal(self, attempt: Attempt) -> str:
        """Return the path of an attempt's journal of paths that are not known before it writes."""
        return f"{self.records.base}/journal-{attempt.unit}-{quote(attempt.token, safe='')}"

    def attempts(self, unit: int) -> list[Attempt]:
        """Return the attempts at a unit, in order, up to the first unreadable one, whose number is free."""
        found: list[Attempt] = []
        while (attempt := self.records.read(f"attempt-{unit}-{len(found)}", Attempt)) is not None:
            found.append(attempt)
        return found

    def all_attempts(self, unit: int) -> tuple[list[Attempt], list[str]]:
        """Return the readable attempts at a unit, and the errors of the others: what those wrote is unknown."""
        return self.records.read_all(f"attempt-{unit}", Attempt)

    def retract(self, attempt: Attempt, *, forget: bool) -> None:
        """Delete the staged record of an attempt; with ``forget`` its number is free again."""
        self.records.delete(f"staged-{attempt.unit}-{attempt.number}")
        if forget:
            self.records.delete(_attempt(attempt))

    def write_staged(self, staged: Staged) -> None:
        """Record that a unit is staged; the last thing that an attempt writes."""
        self.records.write(f"staged-{staged.unit}-{staged.attempt}", staged)

    def staged_by(self, attempt: Attempt) -> Staged | None:
        """Return what one attempt staged, or None if it did not finish."""
        return self.records.read(f"staged-{attempt.unit}-{attempt.number}", Staged)

    def staged(self, unit: int) -> Staged | None:
        """Return what the first attempt that finished a unit staged, or None."""
        number = 0
        while (staged := self.records.read(f"staged-{unit}-{number}", Staged)) is None:
            if not self.records.exists(f"attempt-{unit}-{number}"):
                return None
            number += 1
        return staged

    def unreadable(self, unit: int) -> str | None:
        """Return the error of a unit's last staged record that is unreadable, or None."""
        for number in reversed(range(self.records.count(f"attempt-{unit}"))):
            try:
                self.records.load(f"staged-{unit}-{number}", Staged)
            except Corrupt as error:
                return str(error)
        return None

    def write_failed(self, failure: Failure) -> None:
        """Record that a unit failed for good."""
        self.records.write(f"failed-{failure.unit}", failure)

    def retract_failed(self, failure: Failure) -> None:
        """Delete the record that a unit failed."""
        self.records.delete(f"failed-{failure.unit}")

    def outcome(self, unit: int) -> Staged | Failure | None:
        """Return how a unit ended, or None if it has not."""
        return self.staged(unit) or self.records.read(f"failed-{unit}", Failure)

    def outcomes(self, units: Sequence[UnitHeader]) -> dict[int, Staged | Failure]:
        """Return how the units that have ended did, by number; refused ones count as failed."""
        recorded = self.snapshot()
        found = map_parallel(lambda unit: refusal(unit) or recorded.outcome(unit.number), units)
        return {unit.number: outcome for unit, outcome in zip(units, found, strict=True) if outcome is not None}

    def pending(self, units: Sequence[UnitHeader]) -> Iterator[int]:
        """Yield units that have not ended, the last first: while a job runs, the first look usually finds one."""
        recorded = self.snapshot(len(units))
        for unit in reversed(units):
            if unit.refused is None and recorded.outcome(unit.number) is None:
                yield unit.number

    def claim_commit(self, note: CommitNote) -> int:
        """Record a commit before it writes anything; return the number of the record."""
        return self.records.append("commit", note)

    def update_commit(self, number: int, note: CommitNote) -> None:
        """Record how a commit goes on."""
        self.records.write(f"commit-{number}", note)

    def delete_settled_commits(self, number: int) -> None:
        """Delete the records of settled commits after which no other began, or a record that is not found any more.

        What is missing hides the records after it: none is deleted before one of a commit that may still happen.
        """
        notes = self.commits()
        if number >= len(notes):
            self.records.delete(f"commit-{number}")
        while notes and notes.pop().settled:
            self.records.delete(f"commit-{len(notes)}")

    def commits(self) -> list[CommitNote]:
        """Return the readable records of all commits that began."""
        return self.all_commits()[0]

    def all_commits(self) -> tuple[list[CommitNote], list[str]]:
        """Return the readable records of all commits that began, and the errors of the others."""
        return self.records.read_all("commit", CommitNote)

    def clear(self, units: int) -> None:
        """Delete every record of a plan with so many units."""
        if (listed := self.records.snapshot().listed) is not None:
            delete_files(self.records.io, listed)
            return
        map_parallel(self._clear_unit, range(units))
        for number in reversed(range(self.records.count("commit"))):
            self.records.delete(f"commit-{number}")

    def _clear_unit(self, unit: int) -> None:
        for number in reversed(range(self.records.count(f"attempt-{unit}"))):  # the first one leads to the others
            self.records.delete(f"staged-{unit}-{number}")
            self.records.delete(f"attempt-{unit}-{number}")
        self.records.delete(f"failed-{unit}")
        self.records.delete(f"unit-{unit}")


def refusal(unit: UnitHeader) -> Failure | None:
    """Return the failure of a unit that the plan refuses, or None."""
    return Failure(unit=unit.number, partition=unit.label, reason=unit.refused) if unit.refused else None


def _attempt(attempt: Attempt) -> str:
    return f"attempt-{attempt.unit}-{attempt.number}"
