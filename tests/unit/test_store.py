"""A job's records: what they say while it runs, and that they go in an order that can be taken up at any point."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO

from producer.messages import Failure, Operation, Report, Request, Status
from producer.plans import Plan, Unit, UnitHeader
from producer.staging import Attempt, CommitNote, Staged
from producer.store import JobStore, delete_files, parallel
from tests.support.memoryio import MemoryIO

REQUEST = Request.new("db.t")
REPORT = Report(job=REQUEST.job, table="db.t", status=Status.FAILED, reason="because")


@pytest.fixture
def io() -> MemoryIO:
    return MemoryIO()


@pytest.fixture
def store(io: MemoryIO) -> JobStore:
    return JobStore(io, "s3://lake/db/t/", REQUEST.token)


def unit(number: int, refused: str | None = None) -> Unit:
    header = UnitHeader(
        number=number, label=f"p={number}", files=1, delete_files=1, rows=1, delete_rows=1, cost=1, refused=refused
    )
    return Unit(header=header, scopes=(), data=(), deletes=(), positions=())


def plan(*units: Unit, round_: int = 0) -> Plan:
    return Plan(
        request=REQUEST,
        round=round_,
        table_uuid="u",
        location="s3://lake/db/t",
        format_version=2,
        snapshot_id=1,
        sequence_number=1,
        units=tuple(unit.header for unit in units),
    )


def written(store: JobStore, *units: Unit, round_: int = 0) -> Plan:
    """A plan that is on storage."""
    made = plan(*units, round_=round_)
    store.write_plan(made, units)
    return made


def attempt(unit: int, number: int, token: str = "t", **fields: Any) -> Attempt:
    return Attempt(unit=unit, number=number, token=token, host="here", started=0.0, **fields)


def staged(unit: int, number: int) -> Staged:
    return Staged(unit=unit, attempt=number, scopes=())


def failure(unit: int) -> Failure:
    return Failure(unit=unit, partition="p", reason="no")


def names(io: MemoryIO) -> list[str]:
    """What was changed, in order, without the folder of all jobs."""
    return [path.removeprefix("s3://lake/db/t/_icefleet/").removesuffix(".json") for _, path in io.log]


class TestPlans:
    """A plan that can be read is whole."""

    def test_units_come_before_their_plan(self, store: JobStore, io: MemoryIO) -> None:
        written(store, unit(0), unit(1), unit(2))
        token = REQUEST.token
        assert set(names(io)[:-1]) == {f"{token}/0/unit-{number}" for number in range(3)}
        assert names(io)[-1] == f"{token}/0/plan"

    def test_they_come_back_as_they_were(self, store: JobStore) -> None:
        made = written(store, unit(0), unit(1))
        assert store.plan(0) == made
        assert store.unit(0, 1) == unit(1)

    def test_what_is_not_there_is_none(self, store: JobStore) -> None:
        assert (store.plan(0), store.unit(0, 0), store.latest_plan(), store.plans()) == (None, None, None, [])
        assert (store.staged(0, 0), store.failed(0, 0), store.outcome(0, 0)) == (None, None, None)
        assert (store.current(Operation.CONVERT), store.last(Operation.CONVERT), store.conclusion()) == (None,) * 3

    def test_rounds_follow_each_other(self, store: JobStore) -> None:
        plans = [written(store, unit(0), round_=number) for number in range(3)]
        assert store.plans() == plans
        assert store.latest_plan() == plans[-1]

    def test_records_lie_below_the_table_under_a_name_that_clean_ups_leave_alone(
        self, store: JobStore, io: MemoryIO
    ) -> None:
        written(store, unit(0))
        store.write_current(REQUEST)
        assert all(path.startswith("s3://lake/db/t/_icefleet/") for path in io.files)


class TestAttempts:
    """Attempts at a unit are numbered; the first that comes to its end counts."""

    def test_a_number_is_given_once(self, store: JobStore) -> None:
        assert store.claim(0, attempt(0, 0, "mine"))
        assert not store.claim(0, attempt(0, 0, "theirs"))
        assert store.claim(0, attempt(0, 1, "theirs"))
        assert [found.token for found in store.attempts(0, 0)] == ["mine", "theirs"]

    def test_who_is_as_quick_as_another_loses_once(self, store: JobStore, io: MemoryIO) -> None:
        """Both saw that the number was free; the second one's record is there."""
        theirs = attempt(0, 0, "theirs").model_dump_json().encode()
        io.after = lambda path: io.files.update({path: theirs})
        assert not store.claim(0, attempt(0, 0, "mine"))

    def test_a_claim_that_died_half_written_is_taken_over(
        self, store: JobStore, io: MemoryIO, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/0/attempt-0-0.json"] = b'{"unit": 0, "numb'
        assert store.attempts(0, 0) == []
        assert store.claim(0, attempt(0, 0))
        assert slept, "it might have been one that was being written"
        assert store.attempts(0, 0) == [attempt(0, 0)]

    def test_the_first_that_ended_counts(self, store: JobStore) -> None:
        for number in range(3):
            store.claim(0, attempt(7, number))
        assert store.staged(0, 7) is None
        store.write_staged(0, staged(7, 2))
        assert store.staged(0, 7) == staged(7, 2)
        store.write_staged(0, staged(7, 1))
        assert store.staged(0, 7) == staged(7, 1)
        assert store.staged_by(0, attempt(7, 0)) is None
        assert store.staged_by(0, attempt(7, 2)) == staged(7, 2)

    def test_what_was_staged_outweighs_what_failed(self, store: JobStore) -> None:
        store.claim(0, attempt(0, 0))
        store.write_failed(0, failure(0))
        assert store.outcome(0, 0) == failure(0)
        store.write_staged(0, staged(0, 0))
        assert store.outcome(0, 0) == staged(0, 0)

    def test_what_is_taken_back(self, store: JobStore) -> None:
        store.claim(0, attempt(0, 0))
        store.write_staged(0, staged(0, 0))
        store.retract(0, attempt(0, 0), forget=False)
        assert (store.staged(0, 0), store.attempts(0, 0)) == (None, [attempt(0, 0)])
        store.retract(0, attempt(0, 0), forget=True)
        assert store.attempts(0, 0) == []
        store.retract(0, attempt(0, 0), forget=True)

    def test_how_the_units_of_a_plan_ended(self, store: JobStore) -> None:
        made = written(store, unit(0), unit(1), unit(2, "odd.orc is ORC."), unit(3))
        assert list(store.pending(made)) == [3, 1, 0]
        store.claim(0, attempt(3, 0))
        store.write_staged(0, staged(3, 0))
        store.write_failed(0, failure(0))
        assert list(store.pending(made)) == [1]
        assert store.outcomes(made) == {
            0: failure(0),
            2: Failure(unit=2, partition="p=2", reason="odd.orc is ORC."),
            3: staged(3, 0),
        }

    def test_rounds_are_apart(self, store: JobStore) -> None:
        store.claim(0, attempt(0, 0))
        store.write_staged(0, staged(0, 0))
        assert store.staged(1, 0) is None
        assert store.attempts(1, 0) == []


class TestCommitNotes:
    """Every committer has a note of its own."""

    def test_each_gets_a_number(self, store: JobStore) -> None:
        notes = [CommitNote(token=token, started=1.0) for token in "ab"]
        assert [store.claim_commit(0, note) for note in notes] == [0, 1]
        later = notes[0].model_copy(update={"settled": True})
        store.note_commit(0, 0, later)
        assert store.commits(0) == [later, notes[1]]
        assert store.commits(1) == []

    def test_one_that_is_torn_hides_none(self, store: JobStore, io: MemoryIO, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        written(store, unit(0))
        for token in "abc":
            store.claim_commit(0, CommitNote(token=token, started=1.0))
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/0/commit-1.json"] = b""
        assert [note.token for note in store.commits(0)] == ["a", "c"]
        store.clear()
        assert io.files == {}


class TestStates:
    """What the job's own records say of it."""

    def test_a_job_without_a_plan_has_ended(self, store: JobStore) -> None:
        assert store.ended()
        assert store.closed()
        written(store, unit(0))
        assert not store.ended()
        assert not store.closed()

    def test_a_cancelled_job_may_still_be_ended_by_its_committer(self, store: JobStore) -> None:
        written(store, unit(0))
        store.cancel()
        assert store.cancelled()
        assert store.closed()
        assert not store.ended()

    def test_a_job_that_is_being_cleaned_up(self, store: JobStore) -> None:
        written(store, unit(0))
        store.conclude(REPORT)
        assert store.conclusion() == REPORT
        store.close()
        assert store.closed()
        assert store.ended()
        assert not store.cancelled()

    def test_reports_and_pointers_stay_at_the_table(self, store: JobStore, io: MemoryIO) -> None:
        other = JobStore(io, "s3://lake/db/t", "")
        store.write_current(REQUEST)
        store.write_last(REPORT)
        assert other.current(Operation.CONVERT) == REQUEST
        assert other.last(Operation.CONVERT) == REPORT

    def test_a_record_of_another_make_is_an_error_and_not_absent(self, store: JobStore, io: MemoryIO) -> None:
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/0/plan.json"] = b'{"version": "from the future"}'
        with pytest.raises(ValidationError):
            store.plan(0)

    @pytest.mark.parametrize("contents", [b"", b"{", b'{"request":'])
    def test_one_that_is_half_written_is_absent(self, store: JobStore, io: MemoryIO, contents: bytes) -> None:
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/0/plan.json"] = contents
        assert store.plan(0) is None


def whole_job(store: JobStore) -> None:
    """Every kind of record that a job of two rounds can have."""
    store.write_current(REQUEST)
    for round_ in range(2):
        written(store, unit(0), unit(1), unit(2), round_=round_)
        for number in range(2):
            store.claim(round_, attempt(0, number))
        store.write_staged(round_, staged(0, 1))
        store.claim(round_, attempt(1, 0))
        store.write_failed(round_, failure(1))
        for token in "ab":
            store.claim_commit(round_, CommitNote(token=token, started=1.0))
    store.cancel()
    store.conclude(REPORT)
    store.close()


class TestClearing:
    """All records go, in an order that can be taken up wherever it ends."""

    def test_nothing_is_left(self, store: JobStore, io: MemoryIO) -> None:
        whole_job(store)
        assert len(io.files) == 26
        store.clear()
        assert io.files == {}
        store.clear()

    def test_other_jobs_of_the_table_are_left_alone(self, store: JobStore, io: MemoryIO) -> None:
        other = Request.new("db.t")
        others = JobStore(io, "s3://lake/db/t", other.token)
        written(others, unit(0))
        others.write_current(other)
        others.write_last(REPORT)
        before = dict(io.files)
        written(store, unit(0))
        store.clear()
        assert io.files == before

    def test_plans_go_after_what_they_lead_to_and_the_conclusion_after_all_plans(
        self, store: JobStore, io: MemoryIO
    ) -> None:
        whole_job(store)
        io.log.clear()
        store.clear()
        order = [name.removeprefix(f"{REQUEST.token}/") for name in names(io)]
        for round_ in "01":
            of_round = [name for name in order if name.startswith(f"{round_}/")]
            assert of_round[-1] == f"{round_}/plan"
        assert order.index("1/plan") < order.index("0/plan")
        assert order[-4:] == ["cancelled", "closing", "conclusion", "current-convert"]
        assert order.index("0/attempt-0-1") < order.index("0/attempt-0-0"), "the first one leads to the others"

    def test_it_can_be_taken_up_from_every_point(self, io: MemoryIO) -> None:
        class Killed(BaseException):
            pass

        for at in itertools.count():
            io.files.clear()
            store = JobStore(io, "s3://lake/db/t", REQUEST.token)
            whole_job(store)
            left = itertools.count()

            def trap(left: itertools.count[int] = left, at: int = at) -> None:
                if next(left) >= at:
                    raise Killed

            io.before = trap
            try:
                store.clear()
            except Killed:
                io.before = lambda: None
                again = JobStore(io, "s3://lake/db/t", REQUEST.token)
                if again.conclusion() is None:
                    assert set(names_of(io)) <= {"current-convert"}, "without it nobody would know what to do"
                elif again.latest_plan() is not None:
                    assert again.ended(), "nobody works on it any more"
                again.clear()
                assert io.files == {}, f"killed at change {at}"
                continue
            finally:
                io.before = lambda: None
            break
        assert at > 20

    def test_empty_folders_go_too(self, tmp_path: Path) -> None:
        location = f"file://{tmp_path}/t"
        (tmp_path / "t").mkdir()
        store = JobStore(PyArrowFileIO(), location, REQUEST.token)
        whole_job(store)
        store.clear()
        assert list((tmp_path / "t").iterdir()) == []

    def test_folders_of_others_do_not(self, tmp_path: Path) -> None:
        location = f"file://{tmp_path}/t"
        (tmp_path / "t").mkdir()
        stores = [JobStore(PyArrowFileIO(), location, token) for token in ("one", "two")]
        for store in stores:
            written(store, unit(0))
        stores[0].clear()
        assert [path.name for path in (tmp_path / "t" / "_icefleet").iterdir()] == ["two"]
        stores[1].clear()
        assert list((tmp_path / "t").iterdir()) == []


def names_of(io: MemoryIO) -> list[str]:
    return [path.removeprefix("s3://lake/db/t/_icefleet/").removesuffix(".json") for path in io.files]


class TestFiles:
    """Files are deleted many at a time."""

    def test_one_that_was_never_written_is_no_error(self, io: MemoryIO) -> None:
        io.files = {"a": b"", "b": b"", "c": b""}
        delete_files(io, ["a", "nothing", "c"])
        assert set(io.files) == {"b"}

    def test_one_that_cannot_be_deleted_is(self, io: MemoryIO) -> None:
        io.files = {"a": b""}

        def refuse() -> None:
            raise PermissionError("a")

        io.before = refuse
        with pytest.raises(PermissionError):
            delete_files(io, ["a"])

    def test_results_come_in_order(self) -> None:
        assert parallel(lambda n: n * n, range(100)) == [n * n for n in range(100)]
        assert parallel(str, []) == []
