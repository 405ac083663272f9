"""When the commit of a compaction is right: each rule on a head that another writer has changed since the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from producer.common.errors import Conflict
from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.iceberg.snapshots import PendingSnapshot
from producer.model import job as messages
from producer.model.job import Request
from producer.model.plan import Scope
from producer.model.staged import Staged, StagedDataFile
from producer.planning.planner import plan
from producer.planning.units import PlanWithUnits
from tasks.job.branch_head import BranchHead
from tasks.operations.compact.commit import CompactionChange, CompactionRules
from tasks.testing import RowDelta, StreamTable
from tests.support.livefiles import spec

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
BY_P = spec(0, (2, IdentityTransform(), "p"))


def rows(*ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids))})


@pytest.fixture
def create(tmp_path: Path) -> Iterator[Callable[..., StreamTable]]:
    """Makes a table of two files in partition a, rows 1 to 3 and 4 to 6, and one in b, rows 1 to 3."""
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}")

    def make(version: int = 2) -> StreamTable:
        stream = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_P, format_version=version)
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.append(rows(1, 2, 3, p="b"))
        return stream

    yield make
    catalog.close()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def table(request: pytest.FixtureRequest, create: Callable[..., StreamTable]) -> StreamTable:
    return create(request.param)


@dataclass
class Round:
    """A plan of a unit for each partition, and what they may have staged: one row is left of each unit."""

    stream: StreamTable
    planned: PlanWithUnits
    staged: dict[int, Staged]

    def change(self) -> CompactionChange:
        """What would be committed on the head as it is now."""
        table = self.stream.table
        rules = CompactionRules(self.planned.plan, self.staged)
        first = rules.decide(table, BranchHead.of(table, self.planned.plan))
        again = rules.decide(table, BranchHead.of(table, self.planned.plan))
        assert _told(again) == _told(first), "what was kept of the first attempt changes nothing"
        return first

    def out(self) -> set[str]:
        """The partitions that are thrown out."""
        change = self.change()
        assert not change.failures, change.failures
        out = {replan.failure.partition for replan in change.replans}
        staged = {replan.failure.unit for replan in change.replans}
        assert {unit.unit for unit in change.units} == self.staged.keys() - staged
        return out

    def edit(self, number: int, **fields: Any) -> None:
        """Change what was staged."""
        self.staged[number] = self.staged[number].model_copy(update=fields)


def _told(change: CompactionChange) -> tuple[object, ...]:
    removed = [file.identity for file in change.removed]
    return change.units, change.replans, change.failures, removed


def data_file(path: str, records: int = 1) -> StagedDataFile:
    empty: dict[int, int] = {}
    return StagedDataFile(
        path=path,
        size=10,
        records=records,
        scope=0,
        column_sizes=empty,
        value_counts=empty,
        null_value_counts=empty,
        nan_value_counts=empty,
        lower_bounds={},
        upper_bounds={},
        split_offsets=(),
    )


def planned(stream: StreamTable, *, deleted: int | None = None, **options: str) -> Round:
    """Plan a compaction of everything, each partition for itself; by default all rows but one are deleted."""
    request = Request.new(
        stream.identifier, operation=messages.Operation.COMPACT, options={"rewrite-all": "true", **options}
    )
    found = plan(stream.table, request, unit_bytes=1)
    staged = {}
    for unit in found.units:
        read = unit.header.rows
        gone = read - 1 if deleted is None else deleted
        number = unit.header.number
        files = (data_file(f"new-{number}", read - gone),)
        scopes = tuple(s for s in unit.scopes if s.spec_id == found.plan.rewrite.spec_id) if found.plan.rewrite else ()
        scopes = scopes or (Scope(spec_id=1, values=("61", "00000000"), label="p=a/bucket=0"),)
        staged[number] = Staged(
            unit=number,
            attempt=0,
            scopes=scopes,
            inputs=tuple(file.path for file in unit.data),
            data=files,
            read_rows=read,
            deleted_rows=gone,
        )
    return Round(stream, found, staged)


def data(stream: StreamTable, p: str = "a") -> list[LiveFile]:
    return [file for file in stream.data_files() if file.partition[0] == p]


def equality(stream: StreamTable) -> list[LiveFile]:
    return [file for file in stream.delete_files() if file.content == DataFileContent.EQUALITY_DELETES]


def copied(file: LiveFile, sequence_number: int | None = None, **fields: Any) -> NewFile:
    """A live file once more."""
    kept = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes")
    record = {name: getattr(file.data_file, name) for name in kept} | {"equality_ids": list(file.equality_ids) or None}
    return NewFile(new_data_file(**{**record, **fields}), file.spec_id, sequence_number)


def test_a_head_that_has_not_changed(table: StreamTable) -> None:
    round_ = planned(table)
    change = round_.change()
    assert [len(unit.inputs) for unit in change.units] == [2, 1]
    assert {file.path for file in change.removed} == {file.path for file in table.data_files()}
    added = change.additions(table.table, "name")
    assert (added.written, {file.sequence_number for file in added.files}) == ((), {3})
    assert (change.replans, change.failures) == ((), ())


class TestInputs:
    """Rule 1: every input is live, and what it was."""

    def test_one_that_was_removed(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.remove_files([data(table)[0].path])
        assert round_.out() == {"p=a"}
        [replan] = round_.change().replans
        assert replan.paths == set(round_.staged[0].inputs)

    def test_one_that_was_never_there(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.append(rows(7))
        path = data(table)[-1].path
        round_.edit(0, inputs=(*round_.staged[0].inputs, path))
        assert round_.out() == {"p=a"}

    def test_one_that_went_and_came_again_with_another_number(self, table: StreamTable) -> None:
        """Other deletes apply to it now."""
        round_ = planned(table)
        first = data(table)[0]
        table.commit(RowDelta(removed=[first]))
        table.commit(RowDelta([copied(first, 3)]))
        assert round_.out() == {"p=a"}

    def test_or_under_another_spec(self, table: StreamTable) -> None:
        round_ = planned(table)
        first = data(table)[0]
        with table.table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")
        partition = table.write_data(rows(1))[0].data_file.partition
        table.commit(RowDelta(removed=[first]))
        table.commit(RowDelta([replace(copied(first, 1, partition=partition), spec_id=1)]))
        assert round_.out() == {"p=a"}

    def test_rows_that_were_given_ids(self, create: Callable[..., StreamTable]) -> None:
        """Written without, the rows would be given others."""
        stream = create()
        stream.upgrade()
        round_ = planned(stream)
        assert round_.out() == set()
        stream.append(rows(7, p="c"))
        assert round_.out() == {"p=a", "p=b"}

    def test_a_spec_that_was_removed(self, table: StreamTable) -> None:
        round_ = planned(table)
        assert round_.planned.plan.rewrite is not None
        rewrite = round_.planned.plan.rewrite.model_copy(update={"spec_id": 7})
        gone = round_.planned.plan.model_copy(update={"rewrite": rewrite})
        with pytest.raises(Conflict, match="partition spec 7 was removed"):
            CompactionRules(gone, round_.staged).decide(table.table, BranchHead.of(table.table, gone))


class TestPositionDeletes:
    """Rule 2: the rows that are deleted by position are those of the plan's snapshot."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        return create()

    def test_a_new_one(self, stream: StreamTable) -> None:
        round_ = planned(stream)
        stream.delete_positions({data(stream)[0].path: [0]})
        assert round_.out() == {"p=a"}

    def test_a_new_one_of_a_partition_is_opened(self, stream: StreamTable) -> None:
        first, second = data(stream)
        round_ = planned(stream)
        round_.edit(0, inputs=(first.path,), read_rows=3, deleted_rows=2)
        stream.append(rows(7))
        third = data(stream)[-1]
        stream.delete_positions({second.path: [0], third.path: [0]}, by_partition=True)
        assert round_.out() == set()
        stream.delete_positions({first.path: [0], third.path: [0]}, by_partition=True)
        assert round_.out() == {"p=a"}

    def test_one_that_cannot_be_read_may_name_anything(self, stream: StreamTable) -> None:
        round_ = planned(stream)
        stream.append(rows(7), spec_id=0)
        stream.append(rows(8), spec_id=0)
        *_, third, fourth = data(stream)
        stream.delete_positions({third.path: [0], fourth.path: [0]}, by_partition=True)
        [delete] = stream.delete_files()
        Path(delete.path.removeprefix("file://")).write_bytes(b"PAR1")
        assert round_.out() == {"p=a"}

    def test_one_that_was_removed(self, stream: StreamTable) -> None:
        """Its rows live again."""
        stream.delete_positions({data(stream)[0].path: [0]})
        round_ = planned(stream)
        stream.remove_files([file.path for file in stream.delete_files()])
        assert round_.out() == {"p=a"}

    @pytest.mark.parametrize("named", [True, False])
    def test_one_of_a_partition_that_was_removed(self, stream: StreamTable, named: bool) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        [delete] = stream.delete_files()
        round_ = planned(stream)
        round_.edit(0, inputs=(first.path,), read_rows=3, deleted_rows=2, named={delete.path: (second.path,)})
        if named:
            round_.edit(0, named={delete.path: (first.path, second.path)})
        stream.remove_files([delete.path])
        assert round_.out() == ({"p=a"} if named else set())

    def test_one_that_nobody_has_read_stays_while_outputs_are_as_old(self, stream: StreamTable) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        round_ = planned(stream)
        assert {file.path for file in round_.change().removed} == {file.path for file in stream.data_files()}
        [delete] = stream.delete_files()
        round_.edit(0, named={delete.path: (first.path, second.path)})
        assert delete.path in {file.path for file in round_.change().removed}

    def test_those_that_a_vector_has_taken_the_place_of(self, stream: StreamTable) -> None:
        first, second = data(stream)
        stream.delete_positions({first.path: [0], second.path: [0]}, by_partition=True)
        [delete] = stream.delete_files()
        stream.upgrade()
        stream.delete_vector({first.path: [0], second.path: [0]})
        round_ = planned(stream)
        stream.remove_files([delete.path])
        assert round_.out() == set()


class TestVectors:
    """Rule 2, of format version 3."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        return create(3)

    def test_a_new_one(self, stream: StreamTable) -> None:
        round_ = planned(stream)
        stream.delete_vector({data(stream)[0].path: [0]})
        assert round_.out() == {"p=a"}

    def test_one_that_changed(self, stream: StreamTable) -> None:
        stream.delete_vector({data(stream)[0].path: [0]})
        round_ = planned(stream)
        stream.delete_vector({data(stream)[0].path: [1]})
        assert round_.out() == {"p=a"}

    def test_one_that_was_removed(self, stream: StreamTable) -> None:
        stream.delete_vector({data(stream)[0].path: [0]})
        round_ = planned(stream)
        stream.remove_files([file.path for file in stream.delete_files()])
        assert round_.out() == {"p=a"}

    def test_they_leave_with_their_files(self, stream: StreamTable) -> None:
        stream.delete_vector({file.path: [0] for file in stream.data_files()})
        round_ = planned(stream, **{"remove-dangling-deletes": "false"})
        del round_.staged[1]
        left = {file.referenced_data_file for file in round_.change().removed if file.is_vector}
        assert left == {file.path for file in data(stream)}


class TestEqualityDeletes:
    """Rule 3: what deletes rows of the inputs by key goes on to delete them in the outputs."""

    def test_a_new_one_goes_on(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.delete_where_equal(rows(1), ["id"])
        assert round_.out() == set()

    def test_unless_the_outputs_get_a_new_number(self, table: StreamTable) -> None:
        round_ = planned(table, **{"use-starting-sequence-number": "false"})
        table.delete_where_equal(rows(1), ["id"])
        assert round_.out() == {"p=a"}
        assert {file.sequence_number for file in round_.change().additions(table.table, "").files} == {None}

    def test_one_that_came_and_went(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.delete_where_equal(rows(1), ["id"])
        table.remove_files([equality(table)[0].path])
        assert round_.out() == {"p=a"}

    def test_one_that_came_and_went_and_cannot_match(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.delete_where_equal(rows(99), ["id"])
        table.remove_files([equality(table)[0].path])
        assert round_.out() == set()

    def test_one_that_came_with_an_old_number(self, table: StreamTable) -> None:
        """It reaches the inputs, and would not reach the outputs."""
        round_ = planned(table)
        [delete] = table.write_equality_deletes(rows(1), ["id"])
        table.commit(RowDelta([replace(delete, sequence_number=3)]))
        assert round_.out() == {"p=a"}

    def test_one_that_was_taken_back(self, table: StreamTable) -> None:
        """What it deleted was not written, and lives again."""
        table.delete_where_equal(rows(1), ["id"])
        round_ = planned(table)
        table.remove_files([equality(table)[0].path])
        assert round_.out() == {"p=a"}

    def test_one_that_was_taken_back_and_deleted_nothing(self, table: StreamTable) -> None:
        table.delete_where_equal(rows(1), ["id"])
        round_ = planned(table, deleted=0)
        table.remove_files([equality(table)[0].path])
        assert round_.out() == set()

    def test_one_that_went_and_came_again(self, table: StreamTable) -> None:
        table.delete_where_equal(rows(1), ["id"])
        [delete] = equality(table)
        table.remove_files([delete.path])
        round_ = planned(table)
        table.commit(RowDelta([copied(delete, delete.sequence_number)]))
        assert round_.out() == {"p=a"}

    def test_partitions_of_another_spec(self, table: StreamTable) -> None:
        with table.table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")
        round_ = planned(table)
        [unit] = round_.planned.units
        assert {scope.spec_id for scope in unit.scopes} == {0}
        assert round_.out() == set()
        table.delete_where_equal(rows(1), ["id"], spec_id=0)
        assert len(round_.out()) == 1

    def test_one_that_came_back_with_a_whole_snapshot(self, table: StreamTable) -> None:
        """A snapshot that repeats the manifests of an older one adds nothing, and brings it all back."""
        table.delete_where_equal(rows(1), ["id"])
        older = table.table.current_snapshot()
        table.remove_files([equality(table)[0].path])
        round_ = planned(table)
        now = table.table
        assert older is not None
        again = older.model_copy(
            update={
                "snapshot_id": now.metadata.new_snapshot_id(),
                "parent_snapshot_id": now.metadata.current_snapshot_id,
                "sequence_number": now.metadata.next_sequence_number(),
                "first_row_id": getattr(now.metadata, "next_row_id", None),
                "added_rows": 0 if now.metadata.format_version >= 3 else None,
            }
        )
        PendingSnapshot(now, "main", now.metadata.refs["main"], again, ()).commit()
        assert len(equality(table)) == 1
        assert round_.out() == {"p=a"}

    @pytest.mark.parametrize(
        ("keep", "there", "key"), [(True, True, 1), (True, False, 1), (False, True, 1), (True, True, 99)]
    )
    def test_a_partition_that_rows_come_to(self, table: StreamTable, keep: bool, there: bool, key: int) -> None:
        """Its deletes would reach rows that they do not reach now, unless outputs are newer, or no row is like it."""
        with table.table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")
        round_ = planned(table, **{"use-starting-sequence-number": str(keep).lower()})
        [delete] = table.write_equality_deletes(rows(key), ["id"])
        table.commit(RowDelta([delete]))
        bucket = int(delete.data_file.partition[1] + (0 if there else 1)) % 4
        scope = Scope(spec_id=1, values=(b"a".hex(), bucket.to_bytes(4, "little").hex()), label="")
        round_.edit(0, scopes=(scope,))
        assert bool(round_.out()) == (keep and there and key == 1)


class TestUnits:
    """Rules 5 and 6: rows are counted, and no file is replaced or added twice."""

    def test_rows_that_were_lost(self, table: StreamTable) -> None:
        round_ = planned(table)
        round_.edit(0, deleted_rows=4)
        [failure] = round_.change().failures
        assert failure.reason == "6 rows were read, 4 of them deleted, and 1 were written"
        assert [unit.unit for unit in round_.change().units] == [1]

    def test_rows_that_the_manifests_do_not_know(self, table: StreamTable) -> None:
        round_ = planned(table)
        round_.edit(0, read_rows=7, deleted_rows=6)
        [failure] = round_.change().failures
        assert failure.reason == "its data files have 7 rows, its manifests say 6"

    def test_all_rows_deleted(self, table: StreamTable) -> None:
        round_ = planned(table)
        round_.edit(0, data=(), deleted_rows=6)
        change = round_.change()
        assert len(change.removed) == 3
        assert len(change.additions(table.table, "").files) == 1

    @pytest.mark.parametrize("twice", ["inputs", "data"])
    def test_a_file_of_two_units(self, table: StreamTable, twice: str) -> None:
        round_ = planned(table)
        if twice == "data":
            round_.edit(1, data=round_.staged[0].data)
        else:
            round_.edit(1, inputs=round_.staged[0].inputs[:1])
        change = round_.change()
        assert [unit.unit for unit in change.units] == [0]
        assert [(f.unit, f.reason) for f in change.failures] == [(1, "another unit has the same data files")]

    def test_one_that_is_out_keeps_nothing_from_the_other(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.remove_files([data(table, "b")[0].path])
        assert round_.out() == {"p=b"}

    def test_what_a_commit_left_behind(self, table: StreamTable) -> None:
        round_ = planned(table)
        table.remove_files([file.path for file in data(table)])
        [replan] = CompactionRules(round_.planned.plan, round_.staged).replans_after(table.table)
        assert replan.paths == {file.path for file in data(table, "b")}
