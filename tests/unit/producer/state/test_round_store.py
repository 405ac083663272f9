"""The records of one plan: attempts, what they came to, and commits."""

from __future__ import annotations

import time

import pytest

from producer.model.job import Failure
from producer.model.plan import Plan
from producer.model.staged import CommitNote
from producer.state.job_store import JobStore
from producer.state.round_store import RoundStore
from tests.support.memoryio import MemoryIO
from tests.support.records import REQUEST, attempt, failure, staged, unit, written


@pytest.fixture
def io() -> MemoryIO:
    return MemoryIO()


@pytest.fixture
def store(io: MemoryIO) -> JobStore:
    return JobStore(io, "s3://lake/db/t/", REQUEST.token)


@pytest.fixture
def plan(store: JobStore) -> Plan:
    return written(store, unit(0), unit(1), unit(2, "odd.orc is ORC."), unit(3))


@pytest.fixture
def records(store: JobStore, plan: Plan) -> RoundStore:
    return store.at(plan)


def path(plan: Plan, name: str) -> str:
    return f"s3://lake/db/t/_icefleet/{REQUEST.token}/{plan.round}-{plan.token}/{name}.json"


class TestAttempts:
    """Attempts at a unit are numbered; the first that comes to its end counts."""

    def test_a_number_is_given_once(self, records: RoundStore) -> None:
        assert records.claim_attempt(attempt(0, 0, "mine"))
        assert not records.claim_attempt(attempt(0, 0, "theirs"))
        assert records.claim_attempt(attempt(0, 1, "theirs"))
        assert [found.token for found in records.attempts(0)] == ["mine", "theirs"]

    def test_who_is_as_quick_as_another_loses_once(self, records: RoundStore, io: MemoryIO) -> None:
        """Both saw that the number was free; the second one's record is there."""
        theirs = attempt(0, 0, "theirs").model_dump_json().encode()
        io.after = lambda path: io.files.update({path: theirs})
        assert not records.claim_attempt(attempt(0, 0, "mine"))

    def test_a_claim_that_died_half_written_is_taken_over(
        self, records: RoundStore, plan: Plan, io: MemoryIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        io.files[path(plan, "attempt-0-0")] = b'{"unit": 0, "numb'
        assert records.attempts(0) == []
        assert records.claim_attempt(attempt(0, 0))
        assert slept, "it might have been one that was being written"
        assert records.attempts(0) == [attempt(0, 0)]

    def test_the_first_that_ended_counts(self, records: RoundStore) -> None:
        for number in range(3):
            records.claim_attempt(attempt(7, number))
        assert records.staged(7) is None
        records.write_staged(staged(7, 2))
        assert records.staged(7) == staged(7, 2)
        records.write_staged(staged(7, 1))
        assert records.staged(7) == staged(7, 1)
        assert records.staged_by(attempt(7, 0)) is None
        assert records.staged_by(attempt(7, 2)) == staged(7, 2)

    def test_what_was_staged_outweighs_what_failed(self, records: RoundStore) -> None:
        records.claim_attempt(attempt(0, 0))
        records.write_failed(failure(0))
        assert records.outcome(0) == failure(0)
        records.write_staged(staged(0, 0))
        assert records.outcome(0) == staged(0, 0)

    def test_what_is_taken_back(self, records: RoundStore) -> None:
        records.claim_attempt(attempt(0, 0))
        records.write_staged(staged(0, 0))
        records.retract(attempt(0, 0), forget=False)
        assert (records.staged(0), records.attempts(0)) == (None, [attempt(0, 0)])
        records.retract(attempt(0, 0), forget=True)
        assert records.attempts(0) == []
        records.retract(attempt(0, 0), forget=True)

    def test_how_the_units_of_a_plan_ended(self, records: RoundStore, plan: Plan) -> None:
        assert list(records.pending(plan.units)) == [3, 1, 0]
        records.claim_attempt(attempt(3, 0))
        records.write_staged(staged(3, 0))
        records.write_failed(failure(0))
        assert list(records.pending(plan.units)) == [1]
        assert records.outcomes(plan.units) == {
            0: failure(0),
            2: Failure(unit=2, partition="p=2", reason="odd.orc is ORC."),
            3: staged(3, 0),
        }

    def test_plans_are_apart(self, store: JobStore, records: RoundStore) -> None:
        records.claim_attempt(attempt(0, 0))
        records.write_staged(staged(0, 0))
        later = store.at(written(store, unit(0), round_=1))
        assert later.staged(0) is None
        assert later.attempts(0) == []
        assert later.unit(0) == unit(0)


class TestCommitNotes:
    """Every committer has a note of its own."""

    def test_each_gets_a_number(self, store: JobStore, records: RoundStore) -> None:
        notes = [CommitNote(token=token, started=1.0) for token in "ab"]
        assert [records.claim_commit(note) for note in notes] == [0, 1]
        later = notes[0].model_copy(update={"settled": True})
        records.update_commit(0, later)
        assert records.commits() == [later, notes[1]]
        assert store.at(written(store, unit(0), round_=1)).commits() == []

    def test_one_that_is_torn_hides_none(
        self, store: JobStore, records: RoundStore, plan: Plan, io: MemoryIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        for token in "abc":
            records.claim_commit(CommitNote(token=token, started=1.0))
        io.files[path(plan, "commit-1")] = b""
        assert [note.token for note in records.commits()] == ["a", "c"]
        store.clear()
        assert io.files == {}
