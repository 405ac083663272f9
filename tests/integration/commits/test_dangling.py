"""Deletes that reach no data file any more leave with a compaction, wherever in the table they are, and no others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform

from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Report, Status
from producer.planning.compact.file_groups import RewriteFileGroup
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import Create, compact, data, equality, made, rows
from tests.support.compacting import asked, assert_compacted
from tests.support.faulty import FaultyCatalog, Jobs, meanwhile

#: Nothing is rewritten.
NOTHING = {"rewrite-all": "false", "delete-ratio-threshold": "1"}


def paths(files: Iterable[LiveFile]) -> set[str]:
    return {file.path for file in files}


def drop(stream: StreamTable, jobs: Jobs) -> Report:
    """Run a compaction that finds nothing to rewrite."""
    before, files = oracle.rows(stream.table), stream.data_files()
    report = jobs.run(asked(jobs, options=NOTHING))
    assert jobs.staged == []
    assert oracle.rows(stream.table) == before
    assert paths(stream.data_files()) == paths(files)
    if report.status is Status.COMMITTED:
        assert_compacted(stream, report, before)
    else:
        assert report.status is Status.NOTHING_TO_DO, report
    return report


class TestEqualityDeletes:
    """One leaves when no data file of its scope is older."""

    @pytest.fixture(params=[2, 3], ids=["v2", "v3"])
    def stream(self, request: pytest.FixtureRequest, create: Create) -> StreamTable:
        return create(request.param)

    def test_one_as_old_as_all_data(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.upsert(pa.concat_tables([rows(1), rows(1, p="b")]), ["id"])
        report = drop(stream, jobs)
        assert (report.units, report.removed_delete_files) == (0, 2)
        assert stream.delete_files() == []
        [snapshot] = made(stream, report)
        assert snapshot.summary is not None
        assert snapshot.summary.operation is Operation.REPLACE
        assert drop(stream, jobs).status is Status.NOTHING_TO_DO

    def test_one_with_older_data_stays(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(1))
        stream.upsert(pa.concat_tables([rows(2), rows(2, p="b")]), ["id"])
        drop(stream, jobs)
        assert [delete.partition[0] for delete in stream.delete_files()] == ["a"]

    def test_older_data_in_other_partitions_does_not_keep_it(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(1, p="b"))
        stream.delete_where_equal(rows(1), ["id"])
        drop(stream, jobs)
        assert stream.delete_files() == []

    @pytest.mark.parametrize("older", [True, False])
    def test_a_global_one_is_kept_by_older_data_anywhere(
        self, stream: StreamTable, jobs: Jobs, create: Create, older: bool
    ) -> None:
        version = stream.table.metadata.format_version
        stream = create(version, "db.other", spec=UNPARTITIONED_PARTITION_SPEC)
        with stream.table.update_spec() as update:
            update.add_field("p", IdentityTransform(), "p")
        if older:
            stream.append(rows(9, p="z"), spec_id=1)
        stream.delete_where_equal(rows(1).drop_columns(["p"]), ["id"], spec_id=0)
        stream.append(rows(1), spec_id=1)
        jobs.run(asked(jobs, table="db.other", options=NOTHING))
        assert len(equality(stream)) == older

    def test_outputs_that_keep_their_number_keep_it(self, stream: StreamTable, jobs: Jobs) -> None:
        """It came while files were rewritten: nothing else in the table is older than it (apache/iceberg#10312)."""
        stream.append(rows(1, 2))
        stream.append(rows(3))
        step = jobs.start(asked(jobs))
        stream.delete_where_equal(rows(1), ["id"])
        report = jobs.end(step)
        assert_compacted(stream, report, Counter({(2, "a"): 1, (3, "a"): 1}))
        assert len(equality(stream)) == 1
        assert len(jobs.staged) == 1

    def test_data_that_comes_with_an_old_number_keeps_it(
        self, stream: StreamTable, jobs: Jobs, catalog: FaultyCatalog
    ) -> None:
        stream.append(rows(9, p="b"))
        stream.append(rows(8, p="c"))
        stream.delete_where_equal(rows(1), ["id"])
        catalog.faults.append(meanwhile(lambda: compact(stream, [], rows(1, 2), sequence_number=1)))
        report = jobs.run(asked(jobs))
        assert report.status is Status.COMMITTED
        assert oracle.rows(stream.table) == Counter({(9, "b"): 1, (8, "c"): 1, (2, "a"): 1})
        assert len(equality(stream)) == 1

    def test_those_that_came_since_are_kept(self, stream: StreamTable, jobs: Jobs) -> None:
        """What they delete came since, too, and is not looked at."""
        stream.append(rows(1))
        stream.append(rows(2))
        step = jobs.start(asked(jobs))
        stream.append(rows(9, p="c"))
        stream.delete_where_equal(rows(9, p="c"), ["id"])
        assert_compacted(stream, jobs.end(step), Counter({(1, "a"): 1, (2, "a"): 1}))
        assert len(equality(stream)) == 1

    def test_they_may_be_kept(self, stream: StreamTable, jobs: Jobs) -> None:
        stream.append(rows(1, 2))
        stream.delete_where_equal(rows(1), ["id"])
        report = jobs.run(asked(jobs, options={"remove-dangling-deletes": "false"}))
        assert_compacted(stream, report, Counter({(2, "a"): 1}))
        assert len(equality(stream)) == 1


class TestPositionDeletes:
    """One for a single data file leaves with it; one for several when none is live, as far as that is known."""

    @pytest.fixture
    def stream(self, create: Create) -> StreamTable:
        """Two files in partition a, one in b."""
        stream = create()
        stream.append(rows(1, 2))
        stream.append(rows(3, 4))
        stream.append(rows(1, p="b"))
        return stream

    def test_with_its_data_file(self, stream: StreamTable, jobs: Jobs) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]})
        stream.remove_files([first.path])
        drop(stream, jobs)
        assert {file.referenced_data_file for file in stream.delete_files()} == {second.path}

    def test_one_of_a_partition_stays_while_there_is_data_that_it_may_name(
        self, stream: StreamTable, jobs: Jobs
    ) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        stream.remove_files([first.path])
        assert drop(stream, jobs).status is Status.NOTHING_TO_DO
        stream.remove_files([second.path])
        stream.append(rows(5))
        drop(stream, jobs)
        assert stream.delete_files() == []

    def test_one_whose_files_were_all_rewritten(self, stream: StreamTable, jobs: Jobs) -> None:
        """The outputs are old enough for it, but it was read, and does not name them."""
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        report = jobs.run(asked(jobs))
        assert_compacted(stream, report, Counter({(2, "a"): 1, (4, "a"): 1, (1, "b"): 1}))
        assert stream.delete_files() == []

    def test_outputs_that_are_as_old_as_it_keep_one_that_nobody_read(self, stream: StreamTable, jobs: Jobs) -> None:
        """Rows come into its partition with its own number, and its contents are not known."""
        with stream.table.update_spec() as update:
            update.remove_field("p")
        stream.append(rows(7))
        stream.append(rows(8))
        files = [file for file in stream.data_files() if file.spec_id == stream.table.spec().spec_id]
        named = stream.write_position_deletes({file.path: [0] for file in files}, by_partition=True)
        stream.commit(RowDelta(named, files))
        report = jobs.run(asked(jobs))
        assert report.status is Status.COMMITTED
        assert {file.spec_id for file in stream.data_files()} == {stream.table.spec().spec_id}
        assert [file.content for file in stream.delete_files()] == [DataFileContent.POSITION_DELETES]

    def test_one_of_whose_files_one_was_not(
        self, stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        monkeypatch.setattr("producer.planning.compact.planner.split", lambda group, limit: _apart(group))
        monkeypatch.setattr(
            "producer.planning.compact.planner.bundle", lambda groups, _: [(group,) for group in groups]
        )
        jobs.settings = jobs.settings.model_copy(update={"max_attempts": 1})
        jobs.broken = {0}
        report = jobs.run(asked(jobs))
        assert report.status is Status.PARTIAL
        assert oracle.rows(stream.table) == Counter({(2, "a"): 1, (4, "a"): 1, (1, "b"): 1})
        assert [f.content for f in stream.delete_files()] == [DataFileContent.POSITION_DELETES]

    def test_vectors_leave_with_their_files_whatever_was_asked_for(self, create: Create, jobs: Jobs) -> None:
        stream = create(3, "db.other")
        stream.append(rows(1, 2))
        stream.append(rows(3, p="b"))
        stream.delete_vector({file.path: [0] for file in stream.data_files()})
        stream.commit(RowDelta(removed=data(stream, "b")))
        options = {"remove-dangling-deletes": "false"}
        report = jobs.run(asked(jobs, table="db.other", options=options))
        assert report.status is Status.COMMITTED
        assert [vector.partition[0] for vector in stream.delete_files()] == ["b"]
        report = jobs.run(asked(jobs, table="db.other", options=NOTHING))
        assert report.removed_delete_files == 1
        assert stream.delete_files() == []


def _apart(group: RewriteFileGroup) -> list[RewriteFileGroup]:
    """A group for each of its files."""
    return [replace(group, candidates=(candidate,)) for candidate in group.candidates]
