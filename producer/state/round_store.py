"""The records of one plan: its units, attempts at them, what was staged, what failed, commits that were begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from producer.common.errors import Corrupt
from producer.common.storage import map_parallel
from producer.model.job import Failure
from producer.model.plan import Unit, UnitHeader
from producer.model.staged import Attempt, CommitNote, Staged
from producer.state.records import Records


@dataclass(frozen=True, slots=True)
class RoundStore:
    """What lies in the folder of one plan; every method is one or a few storage operations.

    Args:
        records: The folder's.
    """

    records: Records

    # -- units -------------------------------------------------------------------------------------------------

    def write_unit(self, unit: Unit) -> None:
        """Write a unit with its files."""
        self.records.write(f"unit-{unit.header.number}", unit)

    def unit(self, number: int) -> Unit | None:
        """One unit with its files; raises Corrupt when it is there and cannot be read."""
        return self.records.load(f"unit-{number}", Unit)

    # -- attempts ----------------------------------------------------------------------------------------------

    def claim(self, attempt: Attempt) -> bool:
        """Note an attempt, before it writes anything else; False when another one has taken its number."""
        return self.records.claim(f"attempt-{attempt.unit}-{attempt.number}", attempt)

    def note_attempt(self, attempt: Attempt) -> None:
        """Note what an attempt is about to write, before it writes it."""
        self.records.write(f"attempt-{attempt.unit}-{attempt.number}", attempt)

    def is_taken_over(self, attempt: Attempt) -> bool:
        """Return whether another attempt has the number of this one.

        Storage knows no atomic claim: two workers that begin at the same moment may both be told that a number is
        theirs. The last one that writes its note has it.
        """
        noted = self.records.read(f"attempt-{attempt.unit}-{attempt.number}", Attempt)
        return noted is not None and noted.token != attempt.token

    def journal(self, attempt: Attempt) -> str:
        """Where an attempt notes the paths that it cannot tell before it writes to them."""
        return f"{self.records.base}/journal-{attempt.unit}-{quote(attempt.token, safe='')}"

    def attempts(self, unit: int) -> list[Attempt]:
        """All attempts at a unit, first to last; the number of one that cannot be read is free."""
        found: list[Attempt] = []
        while (attempt := self.records.read(f"attempt-{unit}-{len(found)}", Attempt)) is not None:
            found.append(attempt)
        return found

    def survey(self, unit: int) -> tuple[list[Attempt], list[str]]:
        """All attempts at a unit that can be read, and what is wrong with the others: nobody knows what they wrote."""
        return self.records.survey(f"attempt-{unit}", Attempt)

    def retract(self, attempt: Attempt, *, forget: bool) -> None:
        """Take back what an attempt staged; ``forget`` gives its number free as well."""
        self.records.delete(f"staged-{attempt.unit}-{attempt.number}")
        if forget:
            self.records.delete(f"attempt-{attempt.unit}-{attempt.number}")

    # -- outcomes ----------------------------------------------------------------------------------------------

    def write_staged(self, staged: Staged) -> None:
        """Say that a unit is staged; the last thing that an attempt writes."""
        self.records.write(f"staged-{staged.unit}-{staged.attempt}", staged)

    def staged_by(self, attempt: Attempt) -> Staged | None:
        """What one attempt has staged; None when it did not come to its end."""
        return self.records.read(f"staged-{attempt.unit}-{attempt.number}", Staged)

    def staged(self, unit: int) -> Staged | None:
        """What the first attempt at a unit that came to its end has staged."""
        number = 0
        while (staged := self.records.read(f"staged-{unit}-{number}", Staged)) is None:
            if not self.records.exists(f"attempt-{unit}-{number}"):
                return None
            number += 1
        return staged

    def unreadable(self, unit: int) -> str | None:
        """What is wrong with the last record that a unit is staged which cannot be read, if there is one."""
        for number in reversed(range(self.records.count(f"attempt-{unit}"))):
            try:
                self.records.load(f"staged-{unit}-{number}", Staged)
            except Corrupt as error:
                return str(error)
        return None

    def write_failed(self, failure: Failure) -> None:
        """Say that a unit has failed for good."""
        self.records.write(f"failed-{failure.unit}", failure)

    def retract_failed(self, failure: Failure) -> None:
        """Take back that a unit has failed."""
        self.records.delete(f"failed-{failure.unit}")

    def failed(self, unit: int) -> Failure | None:
        """Why a unit has failed for good."""
        return self.records.read(f"failed-{unit}", Failure)

    def outcome(self, unit: int) -> Staged | Failure | None:
        """How a unit ended; None while it has not."""
        return self.staged(unit) or self.failed(unit)

    def outcomes(self, units: Sequence[UnitHeader]) -> dict[int, Staged | Failure]:
        """How the units that have ended ended, by number; refused ones count as failed."""
        found = map_parallel(lambda unit: refusal(unit) or self.outcome(unit.number), units)
        return {unit.number: outcome for unit, outcome in zip(units, found, strict=True) if outcome is not None}

    def pending(self, units: Sequence[UnitHeader]) -> Iterator[int]:
        """Units that have not ended, the last one first: while a job runs, the first look usually finds one."""
        for unit in reversed(units):
            if unit.refused is None and self.outcome(unit.number) is None:
                yield unit.number

    # -- commits -----------------------------------------------------------------------------------------------

    def claim_commit(self, note: CommitNote) -> int:
        """Note a commit, before it writes anything; returns the number that it is noted under."""
        return self.records.append("commit", note)

    def note_commit(self, number: int, note: CommitNote) -> None:
        """Note how a commit goes on."""
        self.records.write(f"commit-{number}", note)

    def forget_commit(self, number: int) -> None:
        """Take a note back that came after the job's end."""
        self.records.delete(f"commit-{number}")

    def commits(self) -> list[CommitNote]:
        """All commits that were begun."""
        return self.survey_commits()[0]

    def survey_commits(self) -> tuple[list[CommitNote], list[str]]:
        """The same, and what is wrong with those that cannot be read."""
        return self.records.survey("commit", CommitNote)

    # -- the end -----------------------------------------------------------------------------------------------

    def clear(self, units: int) -> None:
        """Delete every record.

        Args:
            units: How many units the plan has.
        """
        map_parallel(self._clear_unit, range(units))
        for number in reversed(range(self.records.count("commit"))):
            self.forget_commit(number)

    def _clear_unit(self, unit: int) -> None:
        for number in reversed(range(self.records.count(f"attempt-{unit}"))):  # the first one leads to the others
            self.records.delete(f"staged-{unit}-{number}")
            self.records.delete(f"attempt-{unit}-{number}")
        self.records.delete(f"failed-{unit}")
        self.records.delete(f"unit-{unit}")


def refusal(unit: UnitHeader) -> Failure | None:
    """The failure of a unit that the plan refuses; None for one that is worked on."""
    return Failure(unit=unit.number, partition=unit.label, reason=unit.refused) if unit.refused else None
