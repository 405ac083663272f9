"""When a commit is right: each rule on a head that another writer has changed since the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from producer.common.errors import Conflict, Refused
from producer.iceberg.manifest_entry import LiveFile
from producer.state.commit_history import JOB, ROUND
from tasks.job.branch_head import added_files, round_snapshot
from tasks.operations.convert.conflicts import Decision
from tasks.testing import RowDelta, StreamTable
from tests.support.livefiles import spec
from tests.support.rounds import Round, planned

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
BY_P = spec(0, (2, IdentityTransform(), "p"))

#: With this limit every partition is a unit of its own, and cut in two when its keys are larger than its deletes.
SMALLEST = 1
#: Keys enough for that.
MANY = range(1000, 6000)


def rows(*ids: int, p: str = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids))})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[InMemoryCatalog]:
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}")
    yield catalog
    catalog.close()


@pytest.fixture
def create(catalog: InMemoryCatalog) -> Callable[..., StreamTable]:
    """Makes the table, partitioned by ``p``."""

    def make(version: int = 2, **options: Any) -> StreamTable:
        return StreamTable.create(catalog, "db.t", SCHEMA, **{"spec": BY_P, "format_version": version, **options})

    return make


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def table(request: pytest.FixtureRequest, create: Callable[..., StreamTable]) -> StreamTable:
    """Rows 1 to 6 in partition a, two files; rows 1 to 3 in partition b; 2, 5 of a and 3 of b deleted by key."""
    stream = create(request.param)
    fill(stream)
    return stream


def fill(stream: StreamTable, more: Iterable[int] = ()) -> None:
    stream.append(rows(1, 2, 3, *more))
    stream.append(rows(4, 5, 6, *more))
    stream.append(rows(1, 2, 3, p="b"))
    stream.delete_where_equal(rows(2, 5), ["id"])
    stream.delete_where_equal(rows(3, p="b"), ["id"])


def paths(files: Iterable[LiveFile]) -> set[str]:
    return {file.path for file in files}


def data(stream: StreamTable, p: str = "a") -> list[LiveFile]:
    """Data files of a partition, oldest first."""
    return [file for file in stream.data_files() if file.partition[0] == p]


def equality(stream: StreamTable, p: str | None = "a") -> LiveFile:
    """The one equality delete of a partition; of the whole table for None."""
    [found] = [
        file
        for file in stream.delete_files()
        if file.content == DataFileContent.EQUALITY_DELETES
        and (len(file.partition) == 0 if p is None else len(file.partition) > 0 and file.partition[0] == p)
    ]
    return found


def targets(decision: Decision) -> set[str]:
    """Data files that something staged is committed for."""
    return (
        {target for _, delete in decision.deletes for target in delete.targets}
        | {vector.target for _, vector in decision.vectors}
        | {merge.staged.target for _, merge in decision.merges}
    )


def compact(stream: StreamTable, files: list[LiveFile], written: pa.Table, sequence_number: int) -> None:
    """What other engines' compactions do."""
    new = stream.write_data(written, sequence_number=sequence_number)
    stream.commit(RowDelta(new, files), operation=Operation.REPLACE)


def test_a_head_that_has_not_changed(table: StreamTable) -> None:
    decision = planned(table).stage().decide()
    assert targets(decision) == paths(table.data_files())
    assert paths(decision.retired) == paths(table.delete_files())
    assert (decision.merges, decision.superseded, decision.again) == ((), (), frozenset())
    assert decision.adds
    assert not decision.empty


class TestEqualityDeletesThatAreGone:
    """Rule 1: one that has gone already is simply left out."""

    def test_the_others_are_retired(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        gone, stays = equality(table, "a").path, equality(table, "b").path
        table.remove_files([gone])
        decision = round_.decide()
        assert paths(decision.retired) == {stays}
        assert decision.again == frozenset()

    def test_a_unit_whose_deletes_were_all_removed_is_not_committed(self, table: StreamTable) -> None:
        """Somebody has done its work, or withdrawn the deletes: its positions may be wrong now."""
        round_ = planned(table, unit_bytes=SMALLEST).stage()
        table.remove_files([equality(table, "a").path])
        assert targets(round_.decide()) == paths(data(table, "b"))

    def test_a_rival_that_was_faster_leaves_nothing_to_do(self, table: StreamTable) -> None:
        round_, rival = planned(table).stage(), planned(table).stage().decide()
        added = (
            table.write_position_deletes({data(table)[0].path: [1]})
            if table.table.metadata.format_version == 2
            else table.write_vectors({data(table)[0].path: [1]}).added
        )
        table.commit(RowDelta(added, rival.retired))
        decision = round_.decide()
        assert decision.empty
        assert not decision.adds, "and no second vector"
        assert decision.again == frozenset()

    def test_new_ones_are_none_of_this_rounds_business(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        before = paths(table.delete_files())
        table.delete_where_equal(rows(1), ["id"])
        assert paths(round_.decide().retired) == before

    def test_of_several_that_a_unit_applied(self, table: StreamTable) -> None:
        """Nothing tells whose positions are whose: what the one that has gone reached is planned again, no more."""
        first = equality(table, "a")
        table.delete_where_equal(rows(6), ["id"])
        round_ = planned(table).stage()
        table.remove_files([first.path])
        decision = round_.decide()
        assert decision.again == {equality(table, "a").path}
        assert paths(decision.retired) == {equality(table, "b").path}
        assert targets(decision) == paths(data(table, "b"))

    def test_one_that_reached_nothing_costs_nothing(self, table: StreamTable) -> None:
        table.append(rows(7, 8))
        table.delete_where_equal(rows(7), ["id"])
        newest = data(table)[-1]
        older, newer = (f.path for f in table.delete_files() if f.partition[0] == "a")
        round_ = planned(table, only=frozenset({newer})).stage()
        table.remove_files([older])
        assert paths(round_.decide().retired) == {newer}
        assert newest.path in targets(round_.decide())


class TestDataFilesThatAreNew:
    """Rule 2: every live data file that a delete reaches was scanned for it."""

    def test_appends_never_conflict(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        table.append(rows(2, 5))
        table.upsert(rows(7), ["id"])
        decision = round_.decide()
        assert decision.again == frozenset()
        assert len(decision.retired) == 2

    def test_a_compaction_that_keeps_an_old_number_sends_its_scope_back(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        compact(table, data(table)[:1], rows(1, 2, 3), sequence_number=1)
        decision = round_.decide()
        assert decision.again == {equality(table, "a").path}
        assert paths(decision.retired) == {equality(table, "b").path}
        assert targets(decision) == {data(table)[1].path, data(table, "b")[0].path}, "the rest is harmless, and right"

    @pytest.mark.parametrize(("distance", "conflicts"), [(-1, True), (0, False), (1, False)])
    def test_as_new_as_the_delete_is_new_enough(self, table: StreamTable, distance: int, conflicts: bool) -> None:
        round_ = planned(table).stage()
        delete = equality(table, "a")
        compact(table, data(table)[:1], rows(1, 3), sequence_number=delete.sequence_number + distance)
        decision = round_.decide()
        assert (delete.path in decision.again, delete.path in paths(decision.retired)) == (conflicts, not conflicts)

    def test_the_newest_file_number_counts_not_the_data_number(self, table: StreamTable) -> None:
        """One commit later the compacted file is an old entry of a new manifest, and still nobody has scanned it."""
        round_ = planned(table).stage()
        compact(table, data(table)[:1], pa.concat_tables([rows(1, 2, 3), rows(1, p="z")]), sequence_number=1)
        table.remove_files(paths(data(table, "z")))
        assert round_.decide().again == {equality(table, "a").path}

    def test_files_that_only_moved_to_another_manifest_are_not_new(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        stream.commit(RowDelta([*stream.write_data(rows(1, 2)), *stream.write_data(rows(3, 4))]))
        stream.delete_where_equal(rows(2), ["id"])
        round_ = planned(stream).stage()
        [scanned] = targets(round_.decide())
        [other] = paths(data(stream)) - {scanned}
        stream.remove_files([other])
        head = round_.head()
        assert (head.added_data, head.removed_data) == ([], frozenset({other}))
        assert targets(round_.decide()) == {scanned}
        assert len(round_.decide().retired) == 1

    def test_a_delete_without_units_is_checked_too(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        stream.append(rows(7, p="b"))
        stream.delete_where_equal(rows(1), ["id"])
        round_ = planned(stream)
        assert [r.units for r in round_.planned.plan.retirements] == [()]
        assert len(round_.decide().retired) == 1
        assert not round_.decide().adds
        compact(stream, [], rows(1), sequence_number=1)
        assert round_.decide().again == {equality(stream).path}
        assert round_.decide().empty


class TestDataFilesThatAreGone:
    """Rule 3: positions of a data file that has gone are dropped."""

    def test_its_positions_are_dropped_and_the_delete_goes(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        first, second = data(table)
        table.remove_files([first.path])
        decision = round_.decide()
        assert targets(decision) == {second.path, data(table, "b")[0].path}
        assert len(decision.retired) == 2
        committed_paths = {file.path for _, file in (*decision.deletes, *decision.vectors)}
        assert committed_paths < {path for staged in round_.staged.values() for path in staged.paths} or (
            table.table.metadata.format_version == 3  # its vectors share a Puffin file
        )

    def test_a_file_of_several_stays_while_one_of_them_lives(self, create: Callable[..., StreamTable]) -> None:
        stream = create(properties={"write.delete.granularity": "partition"})
        fill(stream)
        round_ = planned(stream).stage()
        first, second = data(stream)
        stream.remove_files([first.path])
        assert targets(round_.decide()) == {first.path, second.path, data(stream, "b")[0].path}
        stream.remove_files([second.path])
        assert targets(round_.decide()) == paths(data(stream, "b"))

    def test_when_all_were_removed_the_delete_is_removed_alone(self, table: StreamTable) -> None:
        round_ = planned(table).stage()
        table.remove_files(paths(table.data_files()))
        decision = round_.decide()
        assert not decision.adds
        assert len(decision.retired) == 2

    def test_one_that_left_while_its_manifest_stayed_full_of_others(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        stream.commit(RowDelta([*stream.write_data(rows(1, 2)), *stream.write_data(rows(1, 3))]))
        stream.delete_where_equal(rows(1), ["id"])
        round_ = planned(stream).stage()
        first, second = data(stream)
        stream.remove_files([first.path])
        assert round_.head().removed_data == {first.path}
        assert round_.head().live_data == {second.path}
        assert targets(round_.decide()) == {second.path}


class TestVectors:
    """Rule 4: a vector is committed on the one it was merged with, or is merged again."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        stream = create(3)
        fill(stream)
        return stream

    def test_the_vector_that_was_merged_leaves(self, stream: StreamTable) -> None:
        first, second = data(stream)
        stream.delete_vector({first.path: [0]})
        decision = planned(stream).stage().decide()
        [[old, new]] = [(v.merged, v) for _, v in decision.vectors if v.target == first.path]
        assert old is not None
        assert (old.cardinality, new.cardinality) == (1, 2)
        assert [(file.path, file.referenced_data_file) for file in decision.superseded] == [(old.path, first.path)]
        assert second.path in targets(decision)
        assert decision.merges == ()

    @pytest.mark.parametrize("had_one", [False, True], ids=["first", "changed"])
    def test_a_vector_of_another_writer_is_merged(self, stream: StreamTable, had_one: bool) -> None:
        first, second = data(stream)
        if had_one:
            stream.delete_vector({first.path: [0]})
        round_ = planned(stream).stage()
        stream.delete_vector({first.path: [2]})
        decision = round_.decide()
        [live] = [file for file in stream.delete_files() if file.is_vector]
        [(_, merge)] = decision.merges
        assert merge.staged.target == first.path
        assert (merge.live.path, merge.live.cardinality) == (live.path, 1 + had_one)
        assert paths(decision.superseded) == {live.path}
        assert {vector.target for _, vector in decision.vectors} == {second.path, data(stream, "b")[0].path}
        assert len(decision.retired) == 2
        assert merge.staged.path in {path for staged in round_.staged.values() for path in staged.paths}

    def test_the_same_vector_in_another_file_is_another_one(self, stream: StreamTable) -> None:
        """Vectors share Puffin files: path, offset, size and cardinality tell them apart."""
        first, second = data(stream)
        stream.delete_vector({first.path: [0], second.path: [0]})
        round_ = planned(stream).stage()
        [before] = [f for f in stream.delete_files() if f.referenced_data_file == second.path]
        stream.delete_vector({second.path: [2]})
        [after] = [f for f in stream.delete_files() if f.referenced_data_file == second.path]
        decision = round_.decide()
        assert [merge.staged.target for _, merge in decision.merges] == [second.path]
        identities = {file.identity for file in decision.superseded}
        assert after.identity in identities
        assert before.identity not in identities

    def test_a_unit_whose_vector_has_vanished_is_planned_again(self, create: Callable[..., StreamTable]) -> None:
        """The rows that it deleted live again: the union would delete them."""
        stream = create(3)
        fill(stream, MANY)
        first, second = data(stream)
        stream.delete_vector({first.path: [0]})
        round_ = planned(stream, unit_bytes=SMALLEST).stage()
        assert len(round_.planned.units) == 3
        [vector] = [file for file in stream.delete_files() if file.is_vector]
        stream.remove_files([vector.path])
        decision = round_.decide()
        assert decision.again == {equality(stream, "a").path}
        assert targets(decision) == {second.path, data(stream, "b")[0].path}
        assert paths(decision.retired) == {equality(stream, "b").path}

    def test_a_vector_that_left_with_its_data_file_is_no_loss(self, stream: StreamTable) -> None:
        first, _ = data(stream)
        stream.delete_vector({first.path: [0]})
        round_ = planned(stream).stage()
        [vector] = [file for file in stream.delete_files() if file.is_vector]
        stream.remove_files([first.path, vector.path])
        decision = round_.decide()
        assert decision.again == frozenset()
        assert first.path not in targets(decision)
        assert len(decision.retired) == 2


class TestPositionDeletesOfAnUpgradedTable:
    """Version 3: what a vector has taken up leaves, and a file of several data files when all have one."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        """Three data files in partition a; 2 and 5 will get vectors, and nothing matches in the third."""
        stream = create()
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.append(rows(7, 8, 9))
        return stream

    def shared(self, stream: StreamTable, count: int) -> Round:
        """A position delete file for the first ``count`` data files, then the upgrade and a round."""
        stream.delete_positions({file.path: [0] for file in data(stream)[:count]}, by_partition=True)
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.upgrade()
        return planned(stream).stage()

    def test_a_file_scoped_one_leaves_with_its_vector(self, stream: StreamTable) -> None:
        first = data(stream)[0]
        stream.delete_positions({first.path: [0]})
        [own] = stream.delete_files()
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.upgrade()
        decision = planned(stream).stage().decide()
        assert paths(decision.superseded) == {own.path}
        assert [vector.cardinality for _, vector in decision.vectors if vector.target == first.path] == [2]

    def test_one_that_was_removed_is_not_removed_again(self, stream: StreamTable) -> None:
        stream.delete_positions({data(stream)[0].path: [0]})
        [own] = stream.delete_files()
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.upgrade()
        round_ = planned(stream).stage()
        stream.remove_files([own.path])
        assert round_.decide().superseded == ()

    def test_it_leaves_when_every_file_it_names_has_a_vector(self, stream: StreamTable) -> None:
        round_ = self.shared(stream, 2)
        [shared] = [f for f in stream.delete_files() if f.content == DataFileContent.POSITION_DELETES]
        decision = round_.decide()
        assert paths(decision.superseded) == {shared.path}
        assert [vector.cardinality for _, vector in decision.vectors] == [2, 2]

    def test_it_stays_while_one_of_them_has_none(self, stream: StreamTable) -> None:
        decision = self.shared(stream, 3).decide()
        assert decision.superseded == ()
        assert len(decision.vectors) == 2
        assert len(decision.retired) == 1

    def test_a_file_that_was_removed_needs_none(self, stream: StreamTable) -> None:
        round_ = self.shared(stream, 3)
        stream.remove_files([data(stream)[2].path])
        assert len(round_.decide().superseded) == 1

    def test_a_file_that_went_before_the_plan_needs_none_either(self, stream: StreamTable) -> None:
        stream.delete_positions({file.path: [0] for file in data(stream)}, by_partition=True)
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.remove_files([data(stream)[2].path])
        stream.upgrade()
        assert len(planned(stream).stage().decide().superseded) == 1

    def test_anybodys_vector_will_do(self, stream: StreamTable) -> None:
        round_ = self.shared(stream, 3)
        stream.delete_vector({data(stream)[2].path: [0]})
        decision = round_.decide()
        [shared] = [
            f for f in stream.delete_files() if f.content == DataFileContent.POSITION_DELETES and not f.is_vector
        ]
        assert paths(decision.superseded) == {shared.path}

    def test_one_whose_vector_is_not_committed_has_none(self, stream: StreamTable) -> None:
        round_ = self.shared(stream, 2)
        number = round_.planned.units[0].header.number
        staged = round_.staged[number]
        round_.staged[number] = staged.model_copy(update={"vectors": staged.vectors[:1]})
        assert round_.decide().superseded == ()

    def test_version_2_keeps_them_all(self, stream: StreamTable) -> None:
        stream.delete_positions({file.path: [0] for file in data(stream)[:2]}, by_partition=True)
        stream.delete_positions({data(stream)[2].path: [0]})
        stream.delete_where_equal(rows(2, 5, 8), ["id"])
        round_ = planned(stream).stage()
        assert round_.decide().superseded == ()
        assert len(round_.decide().retired) == 1
        [shared] = {p.path for unit in round_.planned.units for p in unit.positions if p.referenced is None}
        round_.staged[0] = round_.staged[0].model_copy(update={"named": {shared: ("somewhere else",)}})
        assert round_.decide().superseded == (), "whatever a record says"


class TestScopesThatAreNotDone:
    """Rule 5: an equality delete leaves when all of its scope is done."""

    @pytest.mark.parametrize("version", [2, 3])
    def test_every_unit_of_its_partition(self, version: int, create: Callable[..., StreamTable]) -> None:
        table = create(version)
        fill(table, MANY)
        round_ = planned(table, unit_bytes=SMALLEST)
        [retirement] = [r for r in round_.planned.plan.retirements if r.path == equality(table, "a").path]
        assert len(retirement.units) == 2
        decision = round_.stage(retirement.units[0]).decide()
        assert decision.retired == ()
        assert decision.again == frozenset(), "it has failed, and is not to be planned again"
        assert len(targets(decision)) == 1, "positions are right whether or not the delete leaves"
        decision = round_.stage(retirement.units[1]).decide()
        assert paths(decision.retired) == {equality(table, "a").path}

    def test_partitions_leave_apart(self, table: StreamTable) -> None:
        round_ = planned(table, unit_bytes=SMALLEST)
        [last] = [u.header.number for u in round_.planned.units if u.header.label == "p=b"]
        assert paths(round_.stage(last).decide().retired) == {equality(table, "b").path}


class TestGlobalDeletes:
    """Rule 5 for a delete of the whole table: all specs and partitions."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        """Unpartitioned first, then by p; the delete was written under the old spec."""
        stream = create(spec=spec(0))
        stream.append(rows(1, 2, 3))
        with stream.table.update_spec() as update:
            update.add_identity("p")
        stream.append(rows(1, 2, 3, p="a"))
        stream.append(rows(1, 2, 3, p="b"))
        stream.delete_where_equal(rows(2), ["id"], spec_id=0)
        return stream

    def test_it_stays_until_every_unit_is_done(self, stream: StreamTable) -> None:
        round_ = planned(stream, unit_bytes=SMALLEST)
        numbers = [unit.header.number for unit in round_.planned.units]
        assert len(numbers) == 3
        for number in numbers[:-1]:
            assert round_.stage(number).decide().retired == ()
        decision = round_.stage(numbers[-1]).decide()
        assert paths(decision.retired) == {equality(stream, None).path}
        assert targets(decision) == paths(stream.data_files())

    def test_a_compaction_anywhere_sends_it_back(self, stream: StreamTable) -> None:
        round_ = planned(stream).stage()
        [target] = [file for file in stream.data_files() if file.spec_id == 1 and file.partition[0] == "b"]
        compact(stream, [target], rows(1, 2, 3, p="c"), sequence_number=1)
        decision = round_.decide()
        assert decision.again == {equality(stream, None).path}
        assert decision.retired == ()
        assert len(targets(decision)) == 2

    def test_it_stays_when_the_request_leaves_partitions_out(self, stream: StreamTable) -> None:
        round_ = planned(stream, where="p = 'a'").stage()
        assert [r.complete for r in round_.planned.plan.retirements] == [False]
        decision = round_.decide()
        assert (decision.retired, decision.again) == ((), frozenset())
        assert len(targets(decision)) == 1


class TestHeads:
    """What both kinds of work ask of the head before anything else."""

    def test_another_format_version_is_a_conflict(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        fill(stream)
        round_ = planned(stream).stage()
        stream.upgrade()
        with pytest.raises(Conflict, match="upgraded to format version 3"):
            round_.decide()

    def test_a_rollback_behind_the_plan_is_a_conflict(self, table: StreamTable) -> None:
        first = table.table.metadata.snapshots[0].snapshot_id
        round_ = planned(table).stage()
        with table.table.manage_snapshots() as refs:
            refs.rollback_to_snapshot(first)
        with pytest.raises(Conflict, match=f"snapshot {round_.planned.plan.snapshot_id} is no longer in the history"):
            round_.decide()

    def test_a_branch_that_was_dropped_is_refused(self, table: StreamTable) -> None:
        table.commit(RowDelta(table.write_data(rows(9))), branch="audit")
        round_ = planned(table, branch="audit").stage()
        with table.table.manage_snapshots() as refs:
            refs.remove_branch("audit")
        with pytest.raises(Refused, match="no branch 'audit'"):
            round_.decide()

    def test_a_branch_is_looked_at_and_main_is_not(self, table: StreamTable) -> None:
        table.commit(RowDelta(table.write_data(rows(9))), branch="audit")
        round_ = planned(table, branch="audit").stage()
        compact(table, data(table)[:1], rows(1, 2, 3), sequence_number=1)
        assert round_.decide().again == frozenset()
        assert len(round_.decide().retired) == 2


class TestMarkers:
    """A snapshot carries the job and the round that made it."""

    def mark(self, round_: Round, number: int | None = None, branch: str = "main") -> int:
        job = round_.planned.plan.request.job
        marks = {JOB: job, ROUND: str(round_.planned.plan.round if number is None else number)}
        added = round_.stream.write_data(rows(100))
        return round_.stream.commit(RowDelta(added), properties=marks, branch=branch)

    def test_it_is_found_below_later_snapshots(self, table: StreamTable) -> None:
        round_ = planned(table)
        assert round_snapshot(table.table, round_.planned.plan) is None
        made = self.mark(round_)
        table.append(rows(101))
        found = round_snapshot(table.table, round_.planned.plan)
        assert found is not None
        assert found.snapshot_id == made

    def test_another_round_or_job_or_branch_is_not_it(self, table: StreamTable) -> None:
        round_, other = planned(table), planned(table)
        self.mark(round_, 1)
        self.mark(other)
        self.mark(round_, branch="audit")
        assert round_snapshot(table.table, round_.planned.plan) is None

    def test_only_what_its_snapshot_added_is_a_jobs(self, table: StreamTable) -> None:
        before = paths(table.delete_files())
        table.delete_where_equal(rows(1), ["id"])
        [mine] = paths(table.delete_files()) - before
        snapshot = table.table.current_snapshot()
        assert snapshot is not None
        assert paths(added_files(table.table.io, snapshot)) == {mine}
        files = paths(table.data_files())
        table.append(rows(9))
        later = table.table.current_snapshot()
        assert later is not None
        assert paths(added_files(table.table.io, later)) == paths(table.data_files()) - files
        assert added_files(table.table.io, later, (ManifestContent.DELETES,)) == []

    def test_entries_that_its_snapshot_moved_are_not(self, table: StreamTable) -> None:
        table.commit(RowDelta(table.write_equality_deletes(pa.concat_tables([rows(8), rows(8, p="b")]), ["id"])))
        latest = [file for file in table.delete_files() if file.sequence_number == 6]
        assert len(latest) == 2
        table.commit(RowDelta(table.write_equality_deletes(rows(9), ["id"]), latest[:1]))
        snapshot = table.table.current_snapshot()
        assert snapshot is not None
        assert {file.sequence_number for file in added_files(table.table.io, snapshot)} == {7}
