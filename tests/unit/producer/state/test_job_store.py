"""A job's records: what they say while it runs, and that they go in an order that can be taken up at any point."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from producer.common.errors import Newer
from producer.model.codec import encode
from producer.model.job import Operation, Report, Request, Status
from producer.model.staged import CommitNote, PlanNote
from producer.state.job_store import JobStore
from producer.storage.files import delete_files, map_parallel
from tests.support.memoryio import ListingIO, MemoryIO
from tests.support.records import REQUEST, attempt, failure, plan, staged, unit, written

REPORT = Report(job=REQUEST.job, table="db.t", status=Status.FAILED, reason="because")


@pytest.fixture(params=[MemoryIO, ListingIO])
def io(request: pytest.FixtureRequest) -> MemoryIO:
    made: MemoryIO = request.param()
    return made


@pytest.fixture
def store(io: MemoryIO) -> JobStore:
    return JobStore(io, "s3://lake/db/t/", REQUEST.token)


def names(io: MemoryIO) -> list[str]:
    """What was changed, in order, without the folder of all jobs."""
    return [path.removeprefix("s3://lake/db/t/_icefleet/").removesuffix(".json") for _, path in io.log]


class TestPlans:
    """A plan that can be read is whole."""

    def test_units_come_before_their_plan(self, store: JobStore, io: MemoryIO) -> None:
        made = written(store, unit(0), unit(1), unit(2))
        token = REQUEST.token
        assert names(io)[0] == f"{token}/planner-0-0"
        assert set(names(io)[1:-1]) == {f"{token}/0-{made.token}/unit-{number}" for number in range(3)}
        assert names(io)[-1] == f"{token}/plan-0"

    def test_they_come_back_as_they_were(self, store: JobStore) -> None:
        made = written(store, unit(0), unit(1))
        assert store.plan(0) == made
        assert store.at(made).unit(1) == unit(1)

    def test_what_is_not_there_is_none(self, store: JobStore) -> None:
        assert (store.plan(0), store.latest_plan(), store.plans(), store.folders()) == (None, None, [], [])
        assert (store.current(Operation.CONVERT), store.last(Operation.CONVERT), store.conclusion()) == (None,) * 3

    def test_rounds_follow_each_other(self, store: JobStore) -> None:
        plans = [written(store, unit(0), round_=number) for number in range(3)]
        assert store.plans() == plans
        assert store.latest_plan() == plans[-1]
        assert store.folders() == [(store.at(plan), 1) for plan in plans]

    def test_of_two_planners_one_counts_and_both_are_known(self, store: JobStore) -> None:
        """The second one finds the plan of the first; what it has written itself is found at the end."""
        first = written(store, unit(0), unit(1))
        second = plan(unit(7))
        assert store.write_plan(second, [unit(7)]) == first
        assert store.plans() == [first]
        assert store.at(first).unit(0) == unit(0)
        assert store.folders() == [(store.at(first), 2), (store.at(second), 1)]

    def test_two_planners_at_once_keep_their_units_apart(self, store: JobStore, io: MemoryIO) -> None:
        """Neither saw the other's plan: the last to be written counts, with its own units."""
        slow, quick = plan(unit(0), unit(1)), plan(unit(0, "odd.orc is ORC."))

        def meanwhile(path: str) -> None:
            if path.endswith("unit-1.json"):
                io.after = lambda path: None
                store.write_plan(quick, [unit(0, "odd.orc is ORC.")])
                io.files.pop(f"s3://lake/db/t/_icefleet/{REQUEST.token}/plan-0.json")

        io.after = meanwhile
        assert store.write_plan(slow, [unit(0), unit(1)]) == slow
        assert store.at(slow).unit(0) == unit(0)
        assert {folder for folder, _ in store.folders()} == {store.at(slow), store.at(quick)}
        store.clear()
        assert io.files == {}

    def test_a_planner_whose_note_was_overwritten_notes_again(self, store: JobStore, io: MemoryIO) -> None:
        mine, theirs = plan(unit(0)), PlanNote(token="theirs", units=3)

        def meanwhile(path: str) -> None:
            if path.endswith("unit-0.json"):
                io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/planner-0-0.json"] = (
                    theirs.model_dump_json().encode()
                )

        io.after = meanwhile
        store.write_plan(mine, [unit(0)])
        assert [units for _, units in store.folders()] == [3, 1]

    def test_records_lie_below_the_table_under_a_name_that_clean_ups_leave_alone(
        self, store: JobStore, io: MemoryIO
    ) -> None:
        written(store, unit(0))
        store.write_current(REQUEST)
        assert all(path.startswith("s3://lake/db/t/_icefleet/") for path in io.files)


class TestStates:
    """What the job's own records say of it."""

    def test_a_job_without_a_plan_has_ended(self, store: JobStore) -> None:
        assert store.is_closed()
        assert store.is_stopped()
        written(store, unit(0))
        assert not store.is_closed()
        assert not store.is_stopped()

    def test_a_cancelled_job_may_still_be_ended_by_its_committer(self, store: JobStore) -> None:
        written(store, unit(0))
        store.cancel()
        assert store.is_cancelled()
        assert store.is_stopped()
        assert not store.is_closed()

    def test_a_job_that_is_being_cleaned_up(self, store: JobStore) -> None:
        written(store, unit(0))
        store.conclude(REPORT)
        assert store.conclusion() == REPORT
        store.close()
        assert store.is_stopped()
        assert store.is_closed()
        assert not store.is_cancelled()

    def test_reports_and_pointers_stay_at_the_table(self, store: JobStore, io: MemoryIO) -> None:
        other = JobStore(io, "s3://lake/db/t", "")
        store.write_current(REQUEST)
        store.write_last(REPORT)
        assert other.current(Operation.CONVERT) == REQUEST
        assert other.last(Operation.CONVERT) == REPORT

    def test_each_branch_has_its_own(self, io: MemoryIO) -> None:
        branches = ["main", "a", "A", "a/b", "a-b", "a b", "..", "ü" * 300, "main-", ""]
        location = "s3://lake/db/t"
        asked = [Request.new("db.t", branch=branch) for branch in branches]
        for request in asked:
            store = JobStore(io, location, request.token)
            store.write_current(request)
            store.write_last(REPORT.model_copy(update={"job": request.job}), request.branch)
        names = [name.rpartition("/")[2] for name in io.files]
        assert len(names) == len({name.lower() for name in names}) == 2 * len(branches)
        assert all(len(name) < 100 and name.isascii() and name.count(".") == 1 for name in names)
        table = JobStore(io, location, "", branches)
        assert sorted(r.job for r in table.currents(Operation.CONVERT)[0]) == sorted(r.job for r in asked)
        for request in asked:
            assert table.current(Operation.CONVERT, request.branch) == request
            assert table.request_of(Operation.CONVERT, request.job) == request
            last = table.last(Operation.CONVERT, request.job)
            assert last is not None
            assert last.job == request.job
        for request in asked:
            JobStore(io, location, request.token).forget(request.branch)
            assert request.job not in {r.job for r in table.currents(Operation.CONVERT)[0]}
        assert len(io.files) == len(branches), "reports stay"

    def test_the_note_of_a_version_that_had_one_for_the_table(self, io: MemoryIO) -> None:
        """It is found as it lies, and a job on main does not take its place."""
        location, older = "s3://lake/db/t", Request.new("db.t", branch="audit")
        io.files[f"{location}/_icefleet/current-convert.json"] = encode(older).encode()
        table = JobStore(io, location, "", ["main", "audit"])
        assert table.currents(Operation.CONVERT)[0] == [older]
        assert table.current(Operation.CONVERT, "audit") == older
        newer = Request.new("db.t")
        table.write_current(newer)
        assert table.currents(Operation.CONVERT)[0] == [newer, older]
        JobStore(io, location, older.token).forget("audit")
        JobStore(io, location, newer.token).forget()
        assert io.files == {}

    def test_a_note_that_cannot_be_read_hides_no_other(self, io: MemoryIO) -> None:
        location, branches = "s3://lake/db/t", ["main", "audit"]
        request = Request.new("db.t", branch="audit")
        store = JobStore(io, location, request.token, branches)
        store.write_current(request)
        io.files[f"{location}/_icefleet/current-convert.json"] = b"{"
        found, [error] = store.currents(Operation.CONVERT)
        assert (found, "current-convert.json" in str(error)) == ([request], True)
        store.forget("audit")
        assert names_of(io) == ["current-convert"], "which is another job's"

    def test_a_record_of_a_later_version_is_an_error_and_not_absent(self, store: JobStore, io: MemoryIO) -> None:
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/plan-0.json"] = b'{"schema": 2}'
        with pytest.raises(Newer, match=r"plan-0\.json asks for schema 2 and this process knows 1: upgrade it"):
            store.plan(0)

    @pytest.mark.parametrize("contents", [b"", b"{", b'{"request":'])
    def test_one_that_is_half_written_is_absent(self, store: JobStore, io: MemoryIO, contents: bytes) -> None:
        io.files[f"s3://lake/db/t/_icefleet/{REQUEST.token}/plan-0.json"] = contents
        assert store.plan(0) is None


def whole_job(store: JobStore) -> None:
    """Every kind of record that a job of two rounds can have."""
    store.write_current(REQUEST)
    for round_ in range(2):
        at = store.at(written(store, unit(0), unit(1), unit(2), round_=round_))
        for number in range(2):
            at.claim_attempt(attempt(0, number))
        at.write_staged(staged(0, 1))
        at.claim_attempt(attempt(1, 0))
        at.write_failed(failure(1))
        for token in "ab":
            at.claim_commit(CommitNote(token=token, started=1.0))
    store.cancel()
    store.conclude(REPORT)
    store.close()


def end(store: JobStore) -> None:
    """What the end of a job does to its records."""
    store.clear()
    store.forget()


class TestClearing:
    """All records go, in an order that can be taken up wherever it ends."""

    def test_nothing_is_left(self, store: JobStore, io: MemoryIO) -> None:
        whole_job(store)
        assert len(io.files) == 28
        end(store)
        assert io.files == {}
        end(store)

    def test_how_it_ended_stays_until_somebody_knows(self, store: JobStore, io: MemoryIO) -> None:
        whole_job(store)
        store.clear()
        assert set(names_of(io)) == {f"{REQUEST.token}/conclusion", "current-convert"}
        assert store.conclusion() == REPORT
        assert store.is_closed()

    def test_other_jobs_of_the_table_are_left_alone(self, store: JobStore, io: MemoryIO) -> None:
        other = Request.new("db.t")
        others = JobStore(io, "s3://lake/db/t", other.token)
        written(others, unit(0))
        others.write_current(other)
        others.write_last(REPORT)
        before = dict(io.files)
        written(store, unit(0))
        end(store)
        assert io.files == before

    def test_plans_go_after_what_they_lead_to_and_the_conclusion_after_all_plans(self) -> None:
        """Where records cannot be listed."""
        io = MemoryIO()
        store = JobStore(io, "s3://lake/db/t", REQUEST.token)
        whole_job(store)
        io.log.clear()
        end(store)
        order = [name.removeprefix(f"{REQUEST.token}/") for name in names(io)]
        for round_ in "01":
            of_round = [
                name for name in order if name.startswith((f"{round_}-", f"planner-{round_}", f"plan-{round_}"))
            ]
            assert of_round[-2:] == [f"planner-{round_}-0", f"plan-{round_}"]
        assert order.index("plan-1") < order.index("plan-0")
        assert order[-4:] == ["cancelled", "closing", "conclusion", "current-convert"]
        attempts = [name.partition("/")[2] for name in order if name.startswith("0-")]
        assert attempts.index("attempt-0-1") < attempts.index("attempt-0-0"), "the first one leads to the others"

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
                end(store)
            except Killed:
                io.before = lambda: None
                again = JobStore(io, "s3://lake/db/t", REQUEST.token)
                if again.conclusion() is None:
                    assert set(names_of(io)) <= {"current-convert"}, "without it nobody would know what to do"
                elif again.latest_plan() is not None:
                    assert again.is_closed(), "nobody works on it any more"
                end(again)
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
        end(store)
        assert list((tmp_path / "t").iterdir()) == []

    def test_folders_of_others_do_not(self, tmp_path: Path) -> None:
        location = f"file://{tmp_path}/t"
        (tmp_path / "t").mkdir()
        stores = [JobStore(PyArrowFileIO(), location, token) for token in ("one", "two")]
        for store in stores:
            written(store, unit(0))
        end(stores[0])
        assert [path.name for path in (tmp_path / "t" / "_icefleet").iterdir()] == ["two"]
        end(stores[1])
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
        assert map_parallel(lambda n: n * n, range(100)) == [n * n for n in range(100)]
        assert map_parallel(str, []) == []
