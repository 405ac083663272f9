"""Which deletes reach which data file (spec, Scan Planning)."""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Iterable
from typing import Any

import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import BucketTransform, IdentityTransform, VoidTransform
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, NestedField, StringType, StructType

from producer.common.errors import Corrupt
from producer.iceberg.delete_file_index import DeleteFileIndex, key_columns
from producer.iceberg.manifest_entry import FILE_PATH_ID, LiveFile
from producer.iceberg.partitions import newest_type
from tests.support.livefiles import equality, live, metadata, positions, spec, vector

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "x", DoubleType(), required=False),
)
IDENTITY: Any = IdentityTransform()
#: Spec 0 has no fields, 1 is by p, 2 by x, 3 by both, 4 was by p, 5 is by p in another way.
TABLE = metadata(
    SCHEMA,
    specs=[
        spec(0),
        spec(1, (2, IDENTITY, "p")),
        spec(2, (3, IDENTITY, "x")),
        spec(3, (2, IDENTITY, "p"), (3, IDENTITY, "x")),
        spec(4, (2, VoidTransform(), "p"), (3, VoidTransform(), "x")),
        spec(5, (2, BucketTransform(4), "p_bucket")),
    ],
)

DELETES = [equality(f"e{n}", n) for n in (2, 4, 4, 6)]


def reached(deletes: Iterable[LiveFile], file: LiveFile, table: TableMetadata = TABLE) -> set[str]:
    """Paths of the equality deletes that apply to a data file."""
    found = DeleteFileIndex(deletes, table).equality_deletes(file)
    return {delete.path for reach in found for delete in reach.group.deletes[reach.start :]}


def position_deletes(deletes: Iterable[LiveFile], file: LiveFile) -> set[str]:
    """Paths of the position deletes that may name a data file."""
    return {delete.path for delete in DeleteFileIndex(deletes, TABLE).position_deletes(file)}


@pytest.mark.parametrize("missing", ["content_offset", "content_size_in_bytes"])
def test_a_vector_that_nobody_can_find_is_named(missing: str) -> None:
    lost = vector("v.puffin", 3, "a")
    lost.data_file[[field.name for field in DATA_FILE_TYPE[3].fields].index(missing)] = None
    with pytest.raises(Corrupt, match=r"v.puffin .* does not say where"):
        DeleteFileIndex([lost], TABLE)


def test_position_deletes_that_do_not_tell_when_they_were_added_may_name_any_file() -> None:
    deletes = [positions(f"p{n}", n) for n in (2, 4, 6)]
    shared = DeleteFileIndex(deletes, TABLE).partition_position_deletes(live("a", 1))
    assert shared is not None
    assert [shared.count_likely(live("a", 1)), shared.count_likely(live("a", 5))] == [3, 1]
    young = live("a", 5)
    young.entry.file_sequence_number = None
    assert shared.count_likely(young) == 1
    old = live("a", 1)
    old.entry.file_sequence_number = 5
    assert shared.count_likely(old) == 1
    for delete in deletes:
        delete.entry.file_sequence_number = None
    shared = DeleteFileIndex(deletes, TABLE).partition_position_deletes(old)
    assert shared is not None
    assert shared.count_likely(old) == 3


class TestSequenceNumbers:
    """An equality delete reaches what is strictly older, a position delete what is as old as well."""

    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (0, {"e2", "e4", "e6"}),
            (1, {"e2", "e4", "e6"}),
            (2, {"e4", "e6"}),
            (3, {"e4", "e6"}),
            (4, {"e6"}),
            (5, {"e6"}),
            (6, set()),
            (7, set()),
        ],
    )
    def test_equality_deletes_are_strictly_newer(self, number: int, expected: set[str]) -> None:
        assert reached(DELETES, live("d", number)) == expected

    @pytest.mark.parametrize(("number", "expected"), [(1, {"p2", "p4"}), (2, {"p2", "p4"}), (3, {"p4"}), (5, set())])
    def test_position_deletes_are_as_new_or_newer(self, number: int, expected: set[str]) -> None:
        assert position_deletes([positions("p4", 4), positions("p2", 2)], live("d", number)) == expected

    def test_the_newest_of_all(self) -> None:
        assert DeleteFileIndex(DELETES, TABLE).max_equality_sequence_number == 6
        assert DeleteFileIndex([positions("p", 9)], TABLE).max_equality_sequence_number == -1


class TestPartitions:
    """A delete under a partitioned spec reaches its own spec and tuple."""

    def test_only_its_own_partition(self) -> None:
        deletes = [equality("a", 5, "a", spec_id=1), equality("b", 5, "b", spec_id=1)]
        assert reached(deletes, live("d", 1, "a", spec_id=1)) == {"a"}
        assert reached(deletes, live("d", 1, "c", spec_id=1)) == set()

    def test_null_meets_null_and_nothing_else(self) -> None:
        deletes = [equality("null", 5, None, spec_id=1), equality("empty", 5, "", spec_id=1)]
        assert reached(deletes, live("d", 1, None, spec_id=1)) == {"null"}
        assert reached(deletes, live("d", 1, "", spec_id=1)) == {"empty"}

    def test_null_in_a_part_of_the_tuple(self) -> None:
        deletes = [equality("e", 5, "a", None, spec_id=3)]
        assert reached(deletes, live("d", 1, "a", None, spec_id=3)) == {"e"}
        assert reached(deletes, live("d", 1, "a", 0.0, spec_id=3)) == set()
        assert reached(deletes, live("d", 1, None, None, spec_id=3)) == set()

    def test_zeros_differ_and_every_nan_is_the_same(self) -> None:
        other = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
        for value, same, different in [(0.0, 0.0, -0.0), (-0.0, -0.0, 0.0), (math.nan, other, 0.0)]:
            deletes = [equality("e", 5, value, spec_id=2)]
            assert reached(deletes, live("d", 1, same, spec_id=2)) == {"e"}
            assert reached(deletes, live("d", 1, different, spec_id=2)) == set()

    def test_the_same_tuple_under_another_spec_is_another_partition(self) -> None:
        deletes = [equality("e", 5, 3, spec_id=5), equality("f", 5, "a", spec_id=1)]
        assert reached(deletes, live("d", 1, 3, spec_id=5)) == {"e"}
        assert reached(deletes, live("d", 1, 3.0, spec_id=2)) == set()

    def test_position_deletes_too(self) -> None:
        deletes = [positions("a", 5, "a", spec_id=1), positions("null", 5, None, spec_id=1)]
        assert position_deletes(deletes, live("d", 1, "a", spec_id=1)) == {"a"}
        assert position_deletes(deletes, live("d", 1, None, spec_id=1)) == {"null"}
        assert position_deletes(deletes, live("d", 1, "a", 1.0, spec_id=3)) == set()

    def test_a_position_delete_under_no_spec_is_not_global(self) -> None:
        assert position_deletes([positions("p", 5)], live("d", 1, "a", spec_id=1)) == set()
        assert position_deletes([positions("p", 5)], live("d", 1)) == {"p"}


class TestGlobalDeletes:
    """A delete under an unpartitioned spec reaches every spec and partition."""

    @pytest.mark.parametrize(
        "delete", [equality("e", 5), equality("e", 5, None, None, spec_id=4)], ids=["none", "void"]
    )
    def test_every_spec_and_partition(self, delete: LiveFile) -> None:
        for file in [
            live("d", 1),
            live("d", 1, "a", spec_id=1),
            live("d", 1, None, spec_id=1),
            live("d", 1, 1.0, spec_id=2),
            live("d", 1, None, None, spec_id=4),
        ]:
            assert reached([delete], file) == {"e"}
        assert reached([delete], live("d", 5, "a", spec_id=1)) == set(), "sequence numbers still count"

    def test_it_is_no_partition_of_its_own(self) -> None:
        [group] = DeleteFileIndex([equality("e", 5, None, None, spec_id=4), equality("f", 6)], TABLE).groups
        assert group.scope is None
        assert [delete.path for delete in group.deletes] == ["e", "f"]

    def test_a_partitioned_delete_does_not_reach_what_is_unpartitioned(self) -> None:
        assert reached([equality("e", 5, "a", spec_id=1)], live("d", 1)) == set()

    def test_both_kinds_reach_one_file(self) -> None:
        deletes = [equality("e", 5), equality("f", 5, "a", spec_id=1)]
        assert reached(deletes, live("d", 1, "a", spec_id=1)) == {"e", "f"}


class TestEqualityIds:
    """Deletes of one scope with the same set of ids are one group."""

    def test_several_sets_stay_apart_and_all_reach(self) -> None:
        deletes = [equality("e", 5, ids=[1]), equality("f", 3, ids=[2]), equality("g", 4, ids=[1, 2])]
        index = DeleteFileIndex(deletes, TABLE)
        assert {group.equality_ids for group in index.groups} == {(1,), (2,), (1, 2)}
        assert reached(deletes, live("d", 1)) == {"e", "f", "g"}
        assert reached(deletes, live("d", 3)) == {"e", "g"}
        assert reached(deletes, live("d", 4)) == {"e"}

    def test_the_order_of_ids_says_nothing(self) -> None:
        [group] = DeleteFileIndex([equality("e", 5, ids=[2, 1]), equality("f", 6, ids=[1, 2])], TABLE).groups
        assert group.equality_ids == (1, 2)
        assert [field_id for field_id, _ in group.columns] == [1, 2]

    def test_no_ids_at_all_are_corrupt(self) -> None:
        with pytest.raises(Corrupt, match=r"e\.parquet"):
            DeleteFileIndex([equality("e.parquet", 5, ids=[])], TABLE)


class TestVectorsAndPositionDeletes:
    """A vector takes the place of every position delete of its data file."""

    def test_a_vector_is_found_by_its_data_file(self) -> None:
        index = DeleteFileIndex([vector("v", 5, "d"), vector("v", 5, "other")], TABLE)
        found = index.deletion_vector(live("d", 1))
        assert found is not None
        assert found.referenced_data_file == "d"
        assert index.deletion_vector(live("third", 1)) is None

    def test_it_displaces_position_deletes(self) -> None:
        deletes = [positions("p", 5), positions("own", 5, referenced_data_file="d"), vector("v", 5, "d")]
        assert position_deletes(deletes, live("d", 1)) == set()
        assert position_deletes(deletes, live("other", 1)) == {"p"}

    def test_it_does_not_displace_equality_deletes(self) -> None:
        assert reached([vector("v", 9, "d"), equality("e", 5)], live("d", 1)) == {"e"}

    def test_two_for_one_file_are_corrupt(self) -> None:
        with pytest.raises(Corrupt, match=r"w\.puffin .*d\.parquet"):
            DeleteFileIndex([vector("v.puffin", 5, "d.parquet"), vector("w.puffin", 6, "d.parquet")], TABLE)

    def test_one_for_no_file_is_corrupt(self) -> None:
        with pytest.raises(Corrupt, match=r"v\.puffin"):
            DeleteFileIndex([vector("v.puffin", 5, None)], TABLE)

    def test_a_file_scoped_position_delete_is_for_its_own_file(self) -> None:
        path, other = "file:///a/folder/d.parquet", "file:///a/folder/e.parquet"
        bounds, cut = {FILE_PATH_ID: path.encode()}, {FILE_PATH_ID: path[:16].encode()}
        deletes = [
            positions("named", 5, referenced_data_file=path),
            positions("bounds", 5, lower_bounds=bounds, upper_bounds=bounds),
            positions("wide", 5, lower_bounds=bounds, upper_bounds={FILE_PATH_ID: other.encode()}),
            positions("cut", 5, lower_bounds=cut, upper_bounds=cut),
            positions("unknown", 5),
        ]
        assert position_deletes(deletes, live(path, 1)) == {"named", "bounds", "wide", "cut", "unknown"}
        assert position_deletes(deletes, live(other, 1)) == {"wide", "cut", "unknown"}


class TestKeyColumns:
    """Key columns have the type they have now, or the last one they had."""

    def test_a_column_that_was_dropped(self) -> None:
        first = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", IntegerType()), schema_id=0)
        second = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", LongType()), schema_id=1)
        table = metadata(first, second, Schema(NestedField(1, "id", LongType()), schema_id=2))
        assert newest_type(table, 2) == LongType()
        assert key_columns(table, [1, 2]) == ((1, LongType()), (2, LongType()))

    def test_a_column_of_a_struct(self) -> None:
        inner = StructType(NestedField(5, "zip", StringType()))
        table = metadata(Schema(NestedField(1, "id", LongType()), NestedField(4, "address", inner)))
        assert key_columns(table, [5]) == ((5, StringType()),)

    @pytest.mark.parametrize("field_id", [4, 99], ids=["list", "unknown"])
    def test_what_is_no_key(self, field_id: int) -> None:
        tags = NestedField(4, "tags", ListType(5, StringType()))
        assert key_columns(metadata(Schema(NestedField(1, "id", LongType()), tags)), [1, field_id]) == ()


class TestPruning:
    """Only deletes that are newer than the data file count for its pruning."""

    @staticmethod
    def bounds(number: int) -> dict[str, Any]:
        bound = {1: to_bytes(LongType(), number)}
        return {"lower_bounds": bound, "upper_bounds": bound, "null_value_counts": {1: 0}}

    def test_older_deletes_do_not_count(self) -> None:
        deletes = [equality("old", 2, **self.bounds(1)), equality("new", 4, **self.bounds(9))]
        index = DeleteFileIndex(deletes, TABLE)
        for number, expected in [(1, True), (3, False)]:
            file = live("d", number, **self.bounds(5))
            [reach] = index.equality_deletes(file)
            assert reach.group.may_match(file, reach.start) is expected

    def test_a_key_that_cannot_be_compared_is_read(self) -> None:
        file = live("d", 1, **self.bounds(5))
        [reach] = DeleteFileIndex([equality("e", 2, ids=[99], **self.bounds(9))], TABLE).equality_deletes(file)
        assert reach.group.may_match(file, reach.start)


def test_the_order_of_delete_files_says_nothing() -> None:
    deletes = [
        equality("e2", 2),
        equality("e3", 3, ids=[2, 1]),
        equality("e4", 4, ids=[1, 2]),
        positions("p2", 2),
        positions("p3", 3),
    ]
    expected = ({"e3", "e4"}, {"p2", "p3"})
    for order in itertools.islice(itertools.permutations(deletes), 0, None, 7):
        file = live("d", 2)
        assert (reached(order, file), position_deletes(order, file)) == expected


def test_against_the_rule_itself() -> None:
    """Random deletes and files, judged by the sentence of the specification."""
    chance = random.Random(5)
    places: list[tuple[int, tuple[Any, ...]]] = [
        (0, ()),
        (4, (None, None)),
        (1, ("a",)),
        (1, (None,)),
        (2, (0.0,)),
        (2, (-0.0,)),
        (3, ("a", 0.0)),
    ]

    def bits(values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(struct.pack("<d", value) if isinstance(value, float) else value for value in values)

    for _ in range(50):
        deletes = []
        for number in range(chance.randrange(12)):
            spec_id, partition = chance.choice(places)
            ids = chance.choice([[1], [2], [2, 1]])
            deletes.append(equality(f"e{number}", chance.randrange(1, 6), *partition, spec_id=spec_id, ids=ids))
        for number in range(6):
            spec_id, partition = chance.choice(places)
            file = live("d", number, *partition, spec_id=spec_id)
            expected = {
                delete.path
                for delete in deletes
                if number < delete.sequence_number
                and (
                    delete.spec_id in (0, 4)
                    or (delete.spec_id, bits(tuple(delete.partition[i] for i in range(len(delete.partition)))))
                    == (spec_id, bits(partition))
                )
            }
            assert reached(deletes, file) == expected
