"""Compactions that are committed while other writers go on: rows stay what they are, whatever happens in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType

from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.model.job import Report, Status
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, Create, compact, data, equality, fill, made, rows
from tests.support.compacting import asked, assert_compacted
from tests.support.faulty import FaultyCatalog, Jobs, meanwhile
from tests.support.unreferenced import unreferenced


class TestQuietTables:
    """A compaction that nobody disturbs."""

    def test_files_become_one_for_each_partition(self, stream: StreamTable, jobs: Jobs) -> None:
        before = stream.table.metadata
        lineage = oracle.rows(stream.table, lineage=True)
        report = jobs.run(asked(jobs))
        assert_compacted(stream, report, lineage=lineage)
        assert (report.rewritten_data_files, report.added_data_files, report.removed_delete_files) == (3, 2, 2)
        assert stream.delete_files() == []
        [snapshot] = made(stream, report)
        [(_, a), (_, b)] = sorted((f.partition[0], f) for f in stream.data_files())
        for file in (a, b):
            assert file.sequence_number == before.last_sequence_number
            assert file.file_sequence_number == snapshot.sequence_number == before.last_sequence_number + 1
            assert file.data_file.sort_order_id == 0
            assert file.data_file.value_counts == dict.fromkeys(file.data_file.value_counts, 2)
            assert file.lower_bounds[1] < file.upper_bounds[1]
            assert file.data_file.split_offsets == [4]
        again = jobs.run(asked(jobs, options={"rewrite-all": "false"}))
        assert again.status is Status.NOTHING_TO_DO

    def test_without_the_starting_number(self, stream: StreamTable, jobs: Jobs) -> None:
        report = jobs.run(asked(jobs, options={"use-starting-sequence-number": "false"}))
        assert_compacted(stream, report)
        assert {file.sequence_number for file in stream.data_files()} == {made(stream, report)[0].sequence_number}

    def test_a_table_of_which_no_row_is_left(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.delete_where_equal(pa.concat_tables([rows(1, 2, 3), rows(1, 2, 3, p="b")]), ["id"])
        report = jobs.run(asked(jobs))
        assert_compacted(stream, report, Counter())
        assert stream.files() == []

    def test_of_version_1(self, create: Create, jobs: Jobs, catalog: FaultyCatalog) -> None:
        stream = create(1)
        for number in range(3):
            stream.append(pa.concat_tables([rows(number), rows(number, p="b")]))
        expected = oracle.rows(stream.table)
        catalog.faults.append(meanwhile(lambda: stream.append(rows(7))))
        report = jobs.run(asked(jobs))
        assert_compacted(stream, report, expected + Counter({(7, "a"): 1}))
        assert (report.rewritten_data_files, report.added_data_files, len(jobs.staged)) == (6, 2, 1)

    def test_of_version_1_when_an_input_was_removed(self, create: Create, jobs: Jobs) -> None:
        stream = create(1)
        for number in range(3):
            stream.append(rows(number))
        step = jobs.start(asked(jobs))
        stream.remove_files([data(stream)[0].path])
        report = jobs.end(step)
        assert report.status is Status.COMMITTED
        assert sum(oracle.rows(stream.table).values()) == 2
        assert len(jobs.staged) == 2
        assert unreferenced(stream.table) == set()

    def test_of_a_branch(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(7), branch="audit")
        report = jobs.run(asked(jobs, branch="audit"))
        assert report.status is Status.COMMITTED
        assert oracle.rows(stream.table, "audit") == ROWS + Counter({(7, "a"): 1})
        assert len(stream.data_files("audit")) == 2
        assert len(stream.data_files()) == 3


class TestWriters:
    """What other writers commit between plan and commit, or between the last look and the commit."""

    @pytest.fixture(params=["staged", "late"])
    def run(self, request: pytest.FixtureRequest, jobs: Jobs, catalog: FaultyCatalog) -> Callable[..., Report]:
        """Runs a compaction, and something else just before its first commit: seen at once, or after a lost race."""

        def run(something: Callable[[], Any], **options: Any) -> Report:
            step = jobs.start(asked(jobs, **options))
            if request.param == "staged":
                something()
            else:
                catalog.faults.append(meanwhile(something))
            return jobs.end(step)

        return run

    def test_appends_do_not_matter(self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs) -> None:
        report = run(lambda: stream.append(rows(2, 7)))
        assert_compacted(stream, report, ROWS + Counter({(2, "a"): 1, (7, "a"): 1}))
        assert len(jobs.staged) == 1

    def test_upserts_of_a_compacted_key_stay_effective(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        report = run(lambda: stream.upsert(rows(1, 7), ["id"]))
        assert_compacted(stream, report, ROWS + Counter({(7, "a"): 1}))
        assert len(equality(stream)) == 1
        assert len(jobs.staged) == 1

    def test_a_row_that_came_again_after_a_deletion(self, stream: StreamTable, run: Callable[..., Report]) -> None:
        def twice() -> None:
            stream.delete_where_equal(rows(1), ["id"])
            stream.append(rows(1))

        assert_compacted(stream, run(twice))

    def test_without_the_starting_number_they_are_planned_again(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        report = run(
            lambda: stream.delete_where_equal(rows(1), ["id"]), options={"use-starting-sequence-number": "false"}
        )
        assert_compacted(stream, report, ROWS - Counter({(1, "a"): 1}))
        assert len(jobs.staged) == 2

    def test_rows_deleted_by_position_do_not_come_back(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        first = data(stream)[0].path
        delete = stream.delete_positions if stream.table.metadata.format_version == 2 else stream.delete_vector
        report = run(lambda: delete({first: [0]}))
        assert_compacted(stream, report, ROWS - Counter({(1, "a"): 1}))
        assert len(jobs.staged) == 2
        assert stream.delete_files() == []

    def test_by_whatever_operation(self, create: Create, run: Callable[..., Report]) -> None:
        stream = create()
        fill(stream)
        first = data(stream)[0].path

        def rewrite_deletes() -> None:
            stream.commit(
                RowDelta(stream.write_position_deletes({first: [0]}, by_partition=True)), operation=Operation.REPLACE
            )

        assert_compacted(stream, run(rewrite_deletes), ROWS - Counter({(1, "a"): 1}))

    def test_deletes_of_a_partition_that_name_other_files(
        self, create: Create, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        stream = create()
        fill(stream)

        def others() -> None:
            stream.append(rows(7, 8))
            stream.delete_positions({data(stream)[-1].path: [0]}, by_partition=True)
            # What tells that it is for one file is taken away: the committer has to open it.
            [own] = [f for f in stream.delete_files() if f.content == DataFileContent.POSITION_DELETES]
            bounds = {"lower_bounds": None, "upper_bounds": None, "referenced_data_file": None}
            stream.remove_files([own.path])
            stream.commit(RowDelta([_changed(own, **bounds)]))

        assert_compacted(stream, run(others), ROWS + Counter({(8, "a"): 1}))
        assert len(jobs.staged) == 1

    def test_another_compactor_that_was_faster(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        def rival() -> None:
            compact(stream, data(stream), rows(1, 3), sequence_number=4)

        report = run(rival)
        assert_compacted(stream, report)
        assert len(jobs.staged) == 2

    def test_a_conversion_in_between_takes_its_deletes_along(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        """Of the delete that it applied nothing is left at the head, and its positions are for the old files."""

        def delete_and_convert() -> None:
            stream.delete_where_equal(rows(1), ["id"])
            assert jobs.run().removed_equality_delete_files == 3

        step = run(delete_and_convert)
        assert_compacted(stream, step, ROWS - Counter({(1, "a"): 1}))
        assert stream.delete_files() == []

    def test_deletes_that_came_and_went(self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs) -> None:
        """Nothing in the head tells of them: the snapshots in between do."""

        def both() -> None:
            before = {file.path for file in equality(stream)}
            stream.delete_where_equal(rows(1), ["id"])
            stream.remove_files([file.path for file in equality(stream) if file.path not in before])

        report = run(both)
        assert_compacted(stream, report)
        assert len(jobs.staged) == 2

    def test_snapshots_in_between_that_have_expired(
        self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs
    ) -> None:
        def expire() -> None:
            stream.delete_where_equal(rows(1), ["id"])
            middle = stream.table.current_snapshot()
            stream.append(rows(9))
            assert middle is not None
            stream.table.maintenance.expire_snapshots().by_id(middle.snapshot_id).commit()
            Path(middle.manifest_list.removeprefix("file://")).unlink()

        report = run(expire)
        assert_compacted(stream, report, ROWS - Counter({(1, "a"): 1}) + Counter({(9, "a"): 1}))
        assert len(jobs.staged) == 2

    def test_columns_that_come_and_go(self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs) -> None:
        def evolve() -> None:
            with stream.table.update_schema() as update:
                update.add_column("extra", IntegerType()).rename_column("id", "key")

        report = run(evolve)
        assert_compacted(stream, report, Counter({(*row, None): n for row, n in ROWS.items()}))
        assert len(jobs.staged) == 1

    def test_another_partition_spec(self, stream: StreamTable, run: Callable[..., Report], jobs: Jobs) -> None:
        def evolve() -> None:
            with stream.table.update_spec() as update:
                update.add_field("id", BucketTransform(4), "bucket")
            stream.append(rows(7))

        report = run(evolve)
        assert_compacted(stream, report, ROWS + Counter({(7, "a"): 1}))
        assert len(jobs.staged) == 1

    def test_an_upgrade(self, create: Create, run: Callable[..., Report], jobs: Jobs) -> None:
        stream = create()
        fill(stream)
        assert_compacted(stream, run(stream.upgrade))
        assert len(jobs.staged) == 2


def _changed(file: LiveFile, **fields: Any) -> NewFile:
    record = file.data_file
    names = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
    return NewFile(new_data_file(**{name: getattr(record, name) for name in names}, **fields), file.spec_id)
