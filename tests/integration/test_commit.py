"""Commits that go wrong: races, lost answers, tables that change or vanish, and what is left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from producer.errors import Refused
from producer.history import FAILED_UNITS, JOB, OPERATION, ROUND, UNITS, snapshots_of
from producer.manifests import LiveFile
from producer.messages import Report, Status
from tasks.commit import Unanswered
from tasks.entries import NewFile, new_data_file
from tasks.rounds import Ended, Stage, advance, begin
from tasks.summary import content_size
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.faulty import (
    FaultyCatalog,
    Jobs,
    lose,
    meanwhile,
    unanswered_after,
    unanswered_before,
    unreferenced,
)
from tests.support.livefiles import spec

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
BY_P = spec(0, (2, IdentityTransform(), "p"))


def rows(*ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids))})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FaultyCatalog]:
    catalog = FaultyCatalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def jobs(catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    return Jobs(catalog, monkeypatch)


@pytest.fixture
def create(catalog: FaultyCatalog) -> Callable[..., StreamTable]:
    def make(version: int = 2, name: str = "db.t", **options: Any) -> StreamTable:
        return StreamTable.create(catalog, name, SCHEMA, **{"spec": BY_P, "format_version": version, **options})

    return make


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def stream(request: pytest.FixtureRequest, create: Callable[..., StreamTable]) -> StreamTable:
    """Rows in partitions a and b, one of each deleted by key; 3 came again later."""
    stream = create(request.param)
    fill(stream)
    return stream


def fill(stream: StreamTable) -> None:
    stream.append(rows(1, 2, 3))
    stream.append(rows(1, 2, 3, p="b"))
    stream.delete_where_equal(pa.concat_tables([rows(2, 3), rows(1, p="b")]), ["id"])
    stream.append(rows(3))


#: The rows of that table.
ROWS = Counter({(1, "a"): 1, (3, "a"): 1, (2, "b"): 1, (3, "b"): 1})


def equality(stream: StreamTable, branch: str = "main") -> list[LiveFile]:
    return [f for f in stream.delete_files(branch) if f.content == DataFileContent.EQUALITY_DELETES]


def data(stream: StreamTable, p: str = "a") -> list[LiveFile]:
    return [file for file in stream.data_files() if file.partition[0] == p]


def made(stream: StreamTable, report: Report) -> list[Snapshot]:
    """The snapshots of a job."""
    return snapshots_of(stream.table.metadata, report.job)


def on_disk(stream: StreamTable) -> set[Path]:
    folder = Path(stream.table.location().removeprefix("file://"))
    return {path for path in folder.rglob("*") if path.is_file() or path.name == "_icefleet"}


def compact(stream: StreamTable, files: list[LiveFile], written: pa.Table, sequence_number: int) -> None:
    """What other engines' compactions do."""
    new = stream.write_data(written, sequence_number=sequence_number)
    stream.commit(RowDelta(new, files), operation=Operation.REPLACE)


def recount(table: Table, branch: str = "main") -> dict[str, str]:
    """The totals of a branch's head, file by file."""
    counts = Counter[str]()
    for file in oracle.live_files(table, branch):
        kind = "data" if file.content == DataFileContent.DATA else "delete"
        counts[f"total-{kind}-files"] += 1
        counts["total-files-size"] += content_size(file.data_file)
        records = {
            DataFileContent.DATA: "total-records",
            DataFileContent.POSITION_DELETES: "total-position-deletes",
            DataFileContent.EQUALITY_DELETES: "total-equality-deletes",
        }[file.content]
        counts[records] += file.record_count
    names = ("data-files", "delete-files", "files-size", "records", "position-deletes", "equality-deletes")
    return {f"total-{name}": str(counts[f"total-{name}"]) for name in names}


def totals(snapshot: Snapshot) -> dict[str, str]:
    assert snapshot.summary is not None
    return {name: text for name, text in snapshot.summary.additional_properties.items() if name.startswith("total-")}


def assert_converted(stream: StreamTable, report: Report, expected: Counter[Any] = ROWS, branch: str = "main") -> None:
    """One snapshot, the same rows, no equality delete, nothing left behind."""
    assert report.status is Status.COMMITTED, report
    assert equality(stream, branch) == []
    assert oracle.rows(stream.table, branch) == expected
    assert len({file.referenced_data_file for file in stream.files(branch) if file.is_vector}) == len(
        [file for file in stream.files(branch) if file.is_vector]
    ), "one vector for each data file"
    assert unreferenced(stream.table) == set()
    [*_, last] = made(stream, report)
    assert totals(last).items() <= recount(stream.table, branch).items() or last.snapshot_id != head(stream, branch)


def assert_untouched(stream: StreamTable, before: set[Path], metadata: str) -> None:
    """Neither the table nor a file below it has changed."""
    assert stream.table.metadata_location == metadata
    assert on_disk(stream) == before
    assert oracle.rows(stream.table) == ROWS


def head(stream: StreamTable, branch: str = "main") -> int:
    return stream.table.metadata.refs[branch].snapshot_id


class TestSuccess:
    """What a commit is when nothing goes wrong."""

    def test_one_snapshot_and_the_same_rows(self, stream: StreamTable, jobs: Jobs) -> None:
        assert oracle.rows(stream.table) == ROWS
        before, files = stream.table.metadata, on_disk(stream)
        report = jobs.run()
        assert_converted(stream, report)
        after = stream.table.metadata
        assert len(after.snapshots) == len(before.snapshots) + 1
        assert len(after.metadata_log) == len(before.metadata_log) + 1
        lists = {path for path in on_disk(stream) - files if path.name.startswith("snap-")}
        assert len(lists) == 1
        snapshot = after.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary.operation == Operation.DELETE
        assert (snapshot.parent_snapshot_id, snapshot.sequence_number) == (before.current_snapshot_id, 5)
        version_3 = after.format_version == 3
        assert report == Report(
            job=report.job,
            table="db.t",
            status=Status.COMMITTED,
            snapshot_id=snapshot.snapshot_id,
            units=1,
            removed_equality_delete_files=2,
            added_position_delete_files=0 if version_3 else 2,
            added_dvs=2 if version_3 else 0,
            added_position_deletes=3,
            seconds=report.seconds,
        )
        marks = {JOB: report.job, ROUND: "0", OPERATION: "convert", UNITS: "1", FAILED_UNITS: "0"}
        assert marks.items() <= snapshot.summary.additional_properties.items()

    def test_totals_agree_with_a_recount(self, stream: StreamTable, jobs: Jobs) -> None:
        report = jobs.run()
        [snapshot] = made(stream, report)
        assert totals(snapshot) == recount(stream.table)
        parent = stream.table.metadata.snapshot_by_id(snapshot.parent_snapshot_id or 0)
        assert parent is not None
        assert totals(parent)["total-records"] == totals(snapshot)["total-records"], "deletes take no record away"
        stream.append(rows(9))
        current = stream.table.current_snapshot()
        assert current is not None
        assert totals(current) == recount(stream.table)

    def test_a_second_run_changes_nothing(self, stream: StreamTable, jobs: Jobs) -> None:
        jobs.run()
        metadata, files = stream.table.metadata_location, on_disk(stream)
        report = jobs.run()
        assert (report.status, report.reason) == (Status.NOTHING_TO_DO, "there are no equality deletes")
        assert_untouched(stream, files, metadata)

    def test_the_past_stays_as_it_was(self, stream: StreamTable, jobs: Jobs) -> None:
        with stream.table.manage_snapshots() as refs:
            refs.create_tag(head(stream), "before")
        past = {file.identity for file in stream.files("before")}
        jobs.run()
        assert oracle.rows(stream.table, "before") == ROWS
        assert {file.identity for file in stream.files("before")} == past
        assert len(equality(stream, "before")) == 2

    def test_a_delete_that_matches_nothing_is_removed_as_an_overwrite(
        self, create: Callable[..., StreamTable], jobs: Jobs
    ) -> None:
        stream = create()
        stream.append(rows(1, 3))
        stream.delete_where_equal(rows(2), ["id"])
        report = jobs.run()
        assert_converted(stream, report, Counter({(1, "a"): 1, (3, "a"): 1}))
        [snapshot] = made(stream, report)
        assert snapshot.summary is not None
        assert snapshot.summary.operation == Operation.OVERWRITE
        assert (report.removed_equality_delete_files, report.added_position_deletes) == (1, 0)
        assert stream.delete_files() == []

    def test_many_partitions_are_one_snapshot_with_one_list(
        self, create: Callable[..., StreamTable], jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"unit_mb": 0})
        stream = create()
        names = [f"p{number:02}" for number in range(30)]
        stream.append(pa.concat_tables([rows(1, 2, p=p) for p in names]))
        stream.delete_where_equal(pa.concat_tables([rows(1, p=p) for p in names]), ["id"])
        snapshots, files = len(stream.table.metadata.snapshots), on_disk(stream)
        report = jobs.run()
        assert (report.units, report.added_position_delete_files) == (30, 30)
        assert_converted(stream, report, Counter({(2, p): 1 for p in names}))
        assert len(stream.table.metadata.snapshots) == snapshots + 1
        assert len([path for path in on_disk(stream) - files if path.name.startswith("snap-")]) == 1

    def test_one_file_for_each_partition_where_that_is_asked_for(
        self, create: Callable[..., StreamTable], jobs: Jobs
    ) -> None:
        stream = create(properties={"write.delete.granularity": "partition"})
        stream.append(rows(1, 2))
        stream.append(rows(1, 3))
        stream.delete_where_equal(rows(1), ["id"])
        report = jobs.run()
        assert_converted(stream, report, Counter({(2, "a"): 1, (3, "a"): 1}))
        [delete] = stream.delete_files()
        assert (delete.record_count, delete.referenced_data_file) == (2, None)

    def test_new_files_say_what_the_specification_asks_for(self, stream: StreamTable, jobs: Jobs) -> None:
        jobs.run()
        owners = {file.path: file for file in stream.data_files()}
        for delete in stream.delete_files():
            assert delete.referenced_data_file is not None
            owner = owners[delete.referenced_data_file]
            assert delete.partition_key == owner.partition_key
            assert delete.sequence_number == delete.file_sequence_number == 5
            assert delete.data_file.sort_order_id is None
            if delete.is_vector:
                assert (delete.lower_bounds, delete.upper_bounds) == ({}, {})
                assert delete.content_size is not None
            else:
                assert delete.lower_bounds[2147483546] == owner.path.encode() == delete.upper_bounds[2147483546]

    def test_a_committed_upgrade_lets_position_deletes_of_partitions_go(
        self, create: Callable[..., StreamTable], jobs: Jobs
    ) -> None:
        stream = create()
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.delete_positions({file.path: [0] for file in stream.data_files()}, by_partition=True)
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.upgrade()
        report = jobs.run()
        assert_converted(stream, report, Counter({(3, "a"): 1, (6, "a"): 1}))
        assert all(file.is_vector for file in stream.delete_files())
        [snapshot] = made(stream, report)
        assert snapshot.summary is not None
        assert snapshot.summary["removed-position-delete-files"] == "1"


class TestLostRaces:
    """A commit that loses is built again from the same staged files."""

    @pytest.mark.parametrize("times", [1, 4])
    def test_it_is_tried_again(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, times: int) -> None:
        catalog.faults.extend([lose] * times)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert len(catalog.asked) == times + 1
        assert len(jobs.staged) == 1, "nothing is staged again"
        assert len(jobs.slept) == times
        assert all(0 <= seconds <= 10 for seconds in jobs.slept)

    def test_pauses_grow(self, create: Callable[..., StreamTable], catalog: FaultyCatalog, jobs: Jobs) -> None:
        fill(create())
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 40})
        catalog.faults.extend([lose] * 39)
        jobs.run()
        assert max(jobs.slept[:3]) < 1 < max(jobs.slept[10:])
        assert max(jobs.slept) <= 10

    def test_after_the_last_attempt_nothing_is_left(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 3})
        before, metadata = on_disk(stream), stream.table.metadata_location
        catalog.faults.extend([lose] * 3)
        report = jobs.run()
        assert (report.status, report.exit_status) == (Status.FAILED, 1)
        assert report.reason is not None
        assert report.reason.startswith("Other writers were faster 3 times: nothing was committed;")
        assert len(catalog.asked) == 3
        assert len(jobs.slept) == 2
        assert_untouched(stream, before, metadata)

    def test_the_next_job_succeeds(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})
        catalog.faults.append(lose)
        assert jobs.run().status is Status.FAILED
        assert_converted(stream, jobs.run())

    def test_a_writer_who_really_was_faster(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.extend([meanwhile(lambda n=n: stream.append(rows(n))) for n in (7, 8)])
        report = jobs.run()
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1, (8, "a"): 1}))
        [snapshot] = made(stream, report)
        assert snapshot.sequence_number == 7
        assert len(jobs.staged) == 1

    def test_a_writer_on_another_branch(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.append(meanwhile(lambda: stream.append(rows(7), branch="audit")))
        report = jobs.run()
        assert_converted(stream, report)
        assert len(equality(stream, "audit")) == 2
        numbers = [snapshot.sequence_number for snapshot in stream.table.metadata.snapshots]
        assert len(set(numbers)) == len(numbers)


class TestLostAnswers:
    """The history is asked before anything else is done."""

    def test_after_success_nothing_is_committed_again_or_deleted(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.append(unanswered_after)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == len(catalog.asked) == 1
        assert report.removed_equality_delete_files == 2

    def test_and_a_catalog_that_stays_away_for_a_while(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def away(commit: Any) -> Any:
            catalog.unreachable = 2
            return unanswered_after(commit)

        def away_after(commit: Any) -> Any:
            commit()
            catalog.unreachable = 2
            raise TimeoutError("no answer")

        catalog.faults.append(away_after)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(catalog.asked) == 1

    def test_before_the_commit_it_is_tried_again(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.append(unanswered_before)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert len(catalog.asked) == 2
        assert len(jobs.staged) == 1

    def test_before_the_commit_and_then_lost_races(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.extend([unanswered_before, lose, unanswered_before, lose])
        report = jobs.run()
        assert_converted(stream, report)
        assert len(catalog.asked) == 5

    def test_merged_vectors_of_an_attempt_that_never_arrived_are_deleted(
        self, create: Callable[..., StreamTable], catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        stream = create(3)
        fill(stream)
        catalog.faults.append(unanswered_before)
        report = jobs.run(between=lambda: stream.delete_vector({data(stream)[0].path: [0]}))
        assert_converted(stream, report, ROWS - Counter({(1, "a"): 1}))
        assert len(catalog.asked) == 2

    def test_an_answer_that_never_comes_leaves_the_job_to_be_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 2})
        catalog.faults.extend([unanswered_before] * 2)
        request = jobs.request()
        step = jobs.start(request)
        staged = on_disk(stream)
        with pytest.raises(Unanswered, match="gave no answer to the commit"):
            jobs.end(step)
        assert staged <= on_disk(stream), "nothing was deleted"
        assert made(stream, Report(job=request.job, table="db.t", status=Status.FAILED)) == []
        report = jobs.run(request)
        assert_converted(stream, report)
        assert len(jobs.staged) == 1

    def test_a_success_that_nobody_heard_of_is_found_when_the_job_is_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})

        def away(commit: Any) -> Any:
            commit()
            catalog.unreachable = 5
            raise TimeoutError("no answer")

        catalog.faults.append(away)
        request = jobs.request()
        step = jobs.start(request)
        with pytest.raises(Unanswered):
            jobs.end(step)
        catalog.unreachable = 0
        stream.append(rows(7))
        report = jobs.run(request)
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1}))
        assert len(made(stream, report)) == len(catalog.asked) == 1

    def test_a_token_that_expires_leaves_the_job_to_be_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def expire(commit: Any) -> Any:
            catalog.denied = 1
            raise CommitFailedException("the branch has moved")

        catalog.faults.append(expire)
        request = jobs.request()
        step = jobs.start(request)
        with pytest.raises(Refused, match="the token has expired"):
            jobs.end(step)
        assert_converted(stream, jobs.run(request))
        assert len(jobs.staged) == 1

    def test_and_so_does_one_that_expires_before_another_round(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def expire(commit: Any) -> Any:
            answer = commit()
            catalog.denied = 1
            return answer

        catalog.faults.append(expire)
        request = jobs.request()
        step = jobs.start(request)
        compact(stream, data(stream)[:1], rows(1, 2, 3), sequence_number=1)
        with pytest.raises(Refused, match="the token has expired"):
            jobs.end(step)
        report = jobs.run(request)
        assert_converted(stream, report)
        assert len(made(stream, report)) == 2
        assert report.removed_equality_delete_files == 2

    def test_a_success_before_an_upgrade_is_still_one(
        self, create: Callable[..., StreamTable], catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        stream = create()
        fill(stream)

        def commit_and_upgrade(commit: Any) -> Any:
            commit()
            stream.upgrade()
            raise TimeoutError("no answer")

        catalog.faults.append(commit_and_upgrade)
        report = jobs.run()
        assert_converted(stream, report)
        assert report.removed_equality_delete_files == 2

    def test_the_same_message_delivered_again_after_the_end(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        request = jobs.request()
        report = jobs.run(request)
        assert advance(jobs.context(request), jobs.settings) == Ended(None)
        again = begin(request, jobs.settings)
        assert isinstance(again, Ended)
        assert again.report is not None
        assert (again.report.status, again.report.snapshot_id) == (Status.COMMITTED, report.snapshot_id)
        assert len(catalog.asked) == 1
        assert unreferenced(stream.table) == set()


class TestTwoCommitters:
    """The same commit message, delivered twice and worked on side by side."""

    def test_one_of_them_commits(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        found: list[Any] = []

        def other(commit: Any) -> Any:
            found.append(advance(jobs.context(request), jobs.settings))
            return commit()

        catalog.faults.append(other)
        first = advance(jobs.context(request), jobs.settings)
        [second] = found
        assert isinstance(first, Ended)
        assert isinstance(second, Ended)
        assert second.report is not None
        assert_converted(stream, second.report)
        assert len(made(stream, second.report)) == 1
        assert first.report is None or first.report.snapshot_id == second.report.snapshot_id

    def test_none_ends_the_job_under_the_other(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        """The second one is cancelled in the middle of the first one's commit."""
        request = jobs.request()
        jobs.start(request)

        def other(commit: Any) -> Any:
            jobs.context(request).store.cancel()
            advance(jobs.context(request), jobs.settings)
            return commit()

        catalog.faults.append(other)
        step = advance(jobs.context(request), jobs.settings)
        report = jobs.end(step)
        assert_converted(stream, report)


class TestTablesThatVanish:
    """A sentence, and nothing left where the table was."""

    def test_dropped_before_the_commit(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))
        report = jobs.run(between=lambda: catalog.drop_table("db.t"))
        assert (report.status, report.exit_status) == (Status.FAILED, 1)
        assert report.reason == "db.t was dropped while the job ran: nothing was committed."
        assert {path for path in folder.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize("error", [None, NoSuchTableError("db.t")], ids=["requirement", "no such table"])
    def test_dropped_under_the_commit(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, error: Exception | None
    ) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))

        def drop(commit: Any) -> Any:
            catalog.drop_table("db.t")
            if error is not None:
                raise error
            return commit()

        catalog.faults.append(drop)
        report = jobs.run()
        assert report.status is Status.FAILED
        assert report.reason == "db.t was dropped while the job ran: nothing was committed."
        found = {path for path in folder.rglob("*") if path.is_file() or path.name == "_icefleet"}
        assert {path for path in found - before if path.parent.name != "metadata"} == set()

    def test_replaced_before_the_commit(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before = on_disk(stream)
        folder = Path(stream.table.location().removeprefix("file://"))

        def replace() -> None:
            catalog.drop_table("db.t")
            catalog.create_table("db.t", SCHEMA, location=f"{folder}-2")

        report = jobs.run(between=replace)
        assert report.status is Status.FAILED
        assert report.reason == "db.t was replaced by another table while the job ran: nothing was committed."
        assert {path for path in folder.rglob("*") if path.is_file()} == before
        assert catalog.load_table("db.t").metadata.snapshots == []

    def test_replaced_in_the_same_place(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        folder = stream.table.location()

        def replace() -> None:
            catalog.drop_table("db.t")
            catalog.create_table("db.t", SCHEMA, location=folder)
            stream.append(rows(77))

        report = jobs.run(between=replace)
        assert report.status is Status.FAILED
        assert oracle.rows(stream.table) == Counter({(77, "a"): 1})

    def test_a_branch_that_is_dropped(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(7), branch="audit")

        def drop() -> None:
            with stream.table.manage_snapshots() as refs:
                refs.remove_branch("audit")

        report = jobs.run(branch="audit", between=drop)
        assert report.status is Status.FAILED
        assert report.reason is not None
        assert "There is no branch 'audit'" in report.reason
        assert unreferenced(stream.table) == set()
        assert oracle.rows(stream.table) == ROWS

    def test_a_rollback_behind_the_plan_is_planned_again(self, stream: StreamTable, jobs: Jobs) -> None:
        first = stream.table.metadata.snapshots[0].snapshot_id
        back: list[int] = []

        def rollback() -> None:
            if not back:
                back.append(first)
                with stream.table.manage_snapshots() as refs:
                    refs.rollback_to_snapshot(first)

        report = jobs.run(between=rollback)
        assert report.status is Status.NOTHING_TO_DO
        assert oracle.rows(stream.table) == Counter({(n, "a"): 1 for n in (1, 2, 3)})
        assert unreferenced(stream.table) == set()


class TestUpgrades:
    """A table of version 3 gets no position delete file, whatever it was when the job began."""

    @pytest.mark.parametrize("when", ["between", "under the commit"])
    def test_it_is_planned_again(
        self, create: Callable[..., StreamTable], catalog: FaultyCatalog, jobs: Jobs, when: str
    ) -> None:
        stream = create()
        fill(stream)

        def upgrade() -> None:
            if stream.table.metadata.format_version == 2:
                stream.upgrade()

        if when == "between":
            report = jobs.run(between=upgrade)
        else:
            catalog.faults.append(meanwhile(upgrade))
            report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert [file.is_vector for file in stream.delete_files()] == [True, True]
        assert (report.added_dvs, report.added_position_delete_files) == (2, 0)


class TestOtherWriters:
    """Conflicts cost only the units they touch."""

    def test_appends_and_upserts_between_plan_and_commit(self, stream: StreamTable, jobs: Jobs) -> None:
        def write() -> None:
            stream.append(rows(2, 3))
            stream.upsert(rows(1), ["id"])

        report = jobs.run(between=write)
        assert report.status is Status.COMMITTED
        assert len(made(stream, report)) == 1
        assert len(equality(stream)) == 1, "the new one is the next job's"
        expected = Counter({(3, "a"): 2, (2, "a"): 1, (1, "a"): 1, (2, "b"): 1, (3, "b"): 1})
        assert oracle.rows(stream.table) == expected
        assert unreferenced(stream.table) == set()

    def test_a_compaction_that_keeps_an_old_number(self, stream: StreamTable, jobs: Jobs) -> None:
        """Only its partition is planned again, and all of it is converted in the end."""
        compacted: list[str] = []

        def other() -> None:
            if not compacted:
                compacted.append(data(stream)[0].path)
                compact(stream, data(stream)[:1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(between=other)
        assert_converted(stream, report)
        first, second = made(stream, report)
        assert first.summary is not None
        assert second.summary is not None
        assert (first.summary[ROUND], second.summary[ROUND]) == ("0", "1")
        assert first.summary["removed-equality-delete-files"] == second.summary["removed-equality-delete-files"] == "1"
        assert len(jobs.staged) == 2
        assert report.removed_equality_delete_files == 2
        assert compacted[0] not in {file.referenced_data_file for file in stream.delete_files()}

    def test_compactions_without_an_end(self, stream: StreamTable, jobs: Jobs) -> None:
        def other() -> None:
            compact(stream, [f for f in data(stream) if f.sequence_number == 1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(between=other)
        assert report.status is Status.PARTIAL
        assert report.exit_status == 3
        assert report.reason is not None
        assert "other writers changed what" in report.reason
        assert len(jobs.staged) == jobs.settings.max_rounds
        assert [file.partition[0] for file in equality(stream)] == ["a"]
        assert oracle.rows(stream.table) == ROWS
        assert unreferenced(stream.table) == set()

    def test_a_delete_and_its_data_that_are_gone(self, stream: StreamTable, jobs: Jobs) -> None:
        report = jobs.run(
            between=lambda: stream.remove_files([f.path for f in (*equality(stream), *data(stream, "b"))])
        )
        assert report.status is Status.NOTHING_TO_DO
        assert report.reason == "somebody else has done it meanwhile"
        assert made(stream, report) == []
        assert unreferenced(stream.table) == set()

    def test_a_data_file_that_is_gone(self, stream: StreamTable, jobs: Jobs) -> None:
        [b] = data(stream, "b")
        report = jobs.run(between=lambda: stream.remove_files([b.path]))
        assert_converted(stream, report, Counter({(1, "a"): 1, (3, "a"): 1}))
        assert b.path not in {file.referenced_data_file for file in stream.delete_files()}
        assert (report.removed_equality_delete_files, report.added_position_deletes) == (2, 2)

    def test_a_vector_of_somebody_else_is_merged(
        self, create: Callable[..., StreamTable], catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        """Once between plan and commit, once more under the commit."""
        stream = create(3)
        fill(stream)
        [a, *_] = data(stream)
        [b] = data(stream, "b")
        catalog.faults.append(meanwhile(lambda: stream.delete_vector({a.path: [2], b.path: [2]})))
        report = jobs.run(between=lambda: stream.delete_vector({a.path: [0]}))
        assert_converted(stream, report, Counter({(3, "a"): 1, (2, "b"): 1}))
        [snapshot] = made(stream, report)
        assert totals(snapshot) == recount(stream.table)
        assert snapshot.summary is not None
        assert (snapshot.summary["added-dvs"], snapshot.summary["removed-dvs"]) == ("2", "2")
        assert {f.referenced_data_file: f.record_count for f in stream.delete_files()} == {a.path: 3, b.path: 2}

    def test_a_vector_that_was_taken_back(self, create: Callable[..., StreamTable], jobs: Jobs) -> None:
        """Its rows are there again, and none of them may go with the conversion."""
        stream = create(3)
        fill(stream)
        stream.delete_vector({data(stream)[0].path: [0]})
        done: list[bool] = []

        def take_back() -> None:
            if not done:
                done.append(True)
                stream.remove_files([file.path for file in stream.delete_files() if file.is_vector])

        report = jobs.run(between=take_back)
        assert_converted(stream, report)

    def test_two_converters_race(self, stream: StreamTable, jobs: Jobs) -> None:
        one, two = jobs.request(), jobs.request()
        first, second = jobs.start(one), jobs.start(two)
        assert len(jobs.staged) == 2
        report, late = jobs.end(first), jobs.end(second)
        assert_converted(stream, report)
        assert (late.status, late.reason) == (Status.NOTHING_TO_DO, "somebody else has done it meanwhile")
        assert made(stream, late) == []

    def test_two_converters_of_different_partitions(self, stream: StreamTable, jobs: Jobs) -> None:
        first = jobs.start(jobs.request(where="p = 'a'"))
        second = jobs.start(jobs.request(where="p = 'b'"))
        assert jobs.end(first).status is Status.COMMITTED
        assert_converted(stream, jobs.end(second))


class TestPartsThatFail:
    """By default the rest is committed; all or nothing on demand."""

    @pytest.fixture(autouse=True)
    def small_units(self, jobs: Jobs) -> None:
        """Each partition is a unit of its own."""
        jobs.settings = jobs.settings.model_copy(update={"unit_mb": 0})

    def test_the_others_are_committed(self, stream: StreamTable, jobs: Jobs) -> None:
        jobs.broken = {0}
        jobs.settings = jobs.settings.model_copy(update={"max_attempts": 1})
        report = jobs.run()
        assert (report.status, report.exit_status) == (Status.PARTIAL, 3)
        assert (report.units, report.failed_units, report.removed_equality_delete_files) == (2, 1, 1)
        assert report.failures[0].partition == "p=a"
        assert report.reason == "1 of 2 units failed; the first: p=a: OSError: unit 0 does not want to"
        assert [file.partition[0] for file in equality(stream)] == ["a"]
        assert oracle.rows(stream.table) == ROWS
        assert unreferenced(stream.table) == set()
        [snapshot] = made(stream, report)
        assert snapshot.summary is not None
        assert snapshot.summary[FAILED_UNITS] == "1"
        jobs.broken = set()
        assert_converted(stream, jobs.run())

    def test_or_none_at_all(self, stream: StreamTable, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        jobs.broken = {1}
        jobs.settings = jobs.settings.model_copy(update={"max_attempts": 1})
        report = jobs.run(all_or_nothing=True)
        assert (report.status, report.exit_status) == (Status.FAILED, 1)
        assert report.reason is not None
        assert report.reason.startswith("1 of 2 units failed, and all or nothing was asked for; the first: ")
        assert_untouched(stream, before, metadata)

    def test_when_all_of_them_fail(self, stream: StreamTable, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        jobs.broken = {0, 1}
        jobs.settings = jobs.settings.model_copy(update={"max_attempts": 1})
        report = jobs.run()
        assert (report.status, report.failed_units) == (Status.FAILED, 2)
        assert_untouched(stream, before, metadata)

    @pytest.mark.parametrize("all_or_nothing", [False, True])
    def test_a_unit_that_is_refused(self, stream: StreamTable, jobs: Jobs, all_or_nothing: bool) -> None:
        record = new_data_file(
            content=DataFileContent.DATA,
            file_path="s3://x/odd.orc",
            file_format=FileFormat.ORC,
            partition=data(stream)[0].partition,
            record_count=0,
            file_size_in_bytes=9,
        )
        stream.commit(RowDelta([NewFile(record, 0)]))
        stream.delete_where_equal(rows(2), ["id"])
        before = on_disk(stream)
        report = jobs.run(all_or_nothing=all_or_nothing)
        assert report.status is (Status.FAILED if all_or_nothing else Status.PARTIAL)
        assert report.reason is not None
        assert "s3://x/odd.orc is ORC: only Parquet is read so far." in report.reason
        if all_or_nothing:
            assert (jobs.staged, on_disk(stream)) == ([], before)
        else:
            assert {file.partition[0] for file in equality(stream)} == {"a"}

    def test_all_or_nothing_with_a_conflict_is_one_snapshot_in_the_end(self, stream: StreamTable, jobs: Jobs) -> None:
        done: list[bool] = []

        def other() -> None:
            if not done:
                done.append(True)
                compact(stream, data(stream)[:1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(all_or_nothing=True, between=other)
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1

    def test_all_or_nothing_with_conflicts_without_an_end_commits_nothing(
        self, stream: StreamTable, jobs: Jobs
    ) -> None:
        def other() -> None:
            compact(stream, [f for f in data(stream) if f.sequence_number == 1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(all_or_nothing=True, between=other)
        assert report.status is Status.FAILED
        assert report.reason is not None
        assert report.reason.startswith("The table changed under the job 3 times")
        assert made(stream, report) == []
        assert len(equality(stream)) == 2
        assert oracle.rows(stream.table) == ROWS
        assert unreferenced(stream.table) == set()

    def test_selected_partitions_alone(self, stream: StreamTable, jobs: Jobs) -> None:
        report = jobs.run(where="p = 'b'")
        assert report.status is Status.COMMITTED
        assert [file.partition[0] for file in equality(stream)] == ["a"]
        assert oracle.rows(stream.table) == ROWS
        assert unreferenced(stream.table) == set()


class TestBranches:
    """A job reads and moves one branch."""

    def test_main_is_left_as_it_is(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(7), branch="audit")
        main = head(stream)
        report = jobs.run(branch="audit")
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1}), branch="audit")
        assert head(stream) == main
        assert oracle.rows(stream.table) == ROWS
        assert len(equality(stream)) == 2
        [snapshot] = made(stream, report)
        assert totals(snapshot) == recount(stream.table, "audit")

    def test_both_one_after_the_other(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(7), branch="audit")
        assert_converted(stream, jobs.run())
        assert_converted(stream, jobs.run(branch="audit"), ROWS + Counter({(7, "a"): 1}), branch="audit")
        assert oracle.rows(stream.table) == ROWS

    def test_a_tag_is_refused(self, stream: StreamTable, jobs: Jobs) -> None:
        with stream.table.manage_snapshots() as refs:
            refs.create_tag(head(stream), "v1")
        report = jobs.run(branch="v1")
        assert (report.status, report.exit_status) == (Status.REFUSED, 2)


class TestCancelledJobs:
    """Nothing is committed any more, and nothing stays."""

    def test_before_it_is_planned(self, stream: StreamTable, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        request = jobs.request()
        jobs.context(request).store.cancel()
        report = jobs.run(request)
        assert (report.status, report.exit_status) == (Status.CANCELLED, 1)
        assert_untouched(stream, before, metadata)

    def test_when_it_is_staged(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        request = jobs.request()
        step = jobs.start(request)
        assert on_disk(stream) > before
        jobs.context(request).store.cancel()
        report = jobs.end(step)
        assert report.status is Status.CANCELLED
        assert catalog.asked == []
        assert_untouched(stream, before, metadata)

    def test_under_a_commit_that_is_lost(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        request = jobs.request()

        def cancel(commit: Any) -> Any:
            jobs.context(request).store.cancel()
            raise CommitFailedException("the branch has moved")

        catalog.faults.append(cancel)
        report = jobs.run(request)
        assert report.status is Status.CANCELLED
        assert len(catalog.asked) == 1
        assert_untouched(stream, before, metadata)

    def test_too_late(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        request = jobs.request()

        def cancel(commit: Any) -> Any:
            jobs.context(request).store.cancel()
            return commit()

        catalog.faults.append(cancel)
        assert_converted(stream, jobs.run(request))
