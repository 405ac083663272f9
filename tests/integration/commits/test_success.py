"""What a commit is when nothing goes wrong."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from pyiceberg.table.snapshots import Operation

from producer.model.job import Report, Status
from producer.state.commit_history import FAILED_UNITS, JOB, OPERATION, ROUND, UNITS
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import (
    ROWS,
    Create,
    assert_converted,
    assert_untouched,
    equality,
    head,
    made,
    on_disk,
    recount,
    rows,
    totals,
)
from tests.support.faulty import Jobs


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
            removed_delete_files=2,
            removed_bytes=int(snapshot.summary["removed-files-size"] or 0),
            added_bytes=int(snapshot.summary["added-files-size"] or 0),
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

    def test_a_delete_that_matches_nothing_is_removed_as_an_overwrite(self, create: Create, jobs: Jobs) -> None:
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

    def test_many_partitions_are_one_snapshot_with_one_list(self, create: Create, jobs: Jobs) -> None:
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

    def test_one_file_for_each_partition_where_that_is_asked_for(self, create: Create, jobs: Jobs) -> None:
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

    def test_a_committed_upgrade_lets_position_deletes_of_partitions_go(self, create: Create, jobs: Jobs) -> None:
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
