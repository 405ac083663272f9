"""Units that fail, partitions and branches that are asked for, and jobs that are cancelled."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import NewFile, new_data_file
from producer.model import job as messages
from producer.model.job import Status
from producer.state.commit_history import FAILED_UNITS
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import (
    ROWS,
    Create,
    assert_converted,
    assert_untouched,
    compact,
    data,
    equality,
    head,
    made,
    on_disk,
    recount,
    rows,
    totals,
)
from tests.support.faulty import FaultyCatalog, Jobs
from tests.support.unreferenced import unreferenced


def odd_file(path: str, p: str) -> DataFile:
    """A data file that is not read so far."""
    return new_data_file(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.ORC,
        partition=Record(p),
        record_count=1,
        file_size_in_bytes=9,
    )


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

    @pytest.mark.parametrize("all_or_nothing", [False, True])
    @pytest.mark.parametrize("operation", list(messages.Operation))
    def test_when_all_are_refused_no_job_begins(
        self, create: Create, jobs: Jobs, all_or_nothing: bool, operation: messages.Operation
    ) -> None:
        stream = create()
        files = [odd_file(f"s3://x/{p}.orc", p) for p in "ab"]
        stream.commit(RowDelta([NewFile(file, 0) for file in files]))
        for p in "ab":
            stream.delete_where_equal(rows(2, p=p), ["id"])
        before, metadata = on_disk(stream), stream.table.metadata_location
        options = {"rewrite-all": "true"} if operation is messages.Operation.COMPACT else {}
        report = jobs.run(jobs.request(operation=operation, options=options, all_or_nothing=all_or_nothing))
        assert (report.status, report.exit_status) == (Status.REFUSED, 2)
        assert (report.units, report.failed_units, len(report.failures)) == (2, 2, 2)
        assert report.reason is not None
        assert "s3://x/a.orc is ORC: only Parquet is read so far. (and 1 more unit)" in report.reason
        assert (on_disk(stream), stream.table.metadata_location) == (before, metadata)

    def test_what_needs_no_unit_is_done_beside_refused_ones(self, create: Create, jobs: Jobs) -> None:
        """A delete that reaches nothing leaves all the same."""
        stream = create()
        stream.delete_where_equal(rows(2, p="b"), ["id"])
        stream.commit(RowDelta([NewFile(odd_file("s3://x/a.orc", "a"), 0)]))
        stream.delete_where_equal(rows(2), ["id"])
        report = jobs.run()
        assert (report.status, report.exit_status) == (Status.PARTIAL, 3)
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
