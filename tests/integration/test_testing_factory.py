"""The table factory, held to what an independent reader and PyIceberg make of its tables."""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from producer.iceberg.manifest_entry import FILE_PATH_ID
from tasks.testing import RowDelta, StreamTable, local_catalog, read_rows

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "cat", StringType(), required=False))
BY_CAT = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "cat"))

#: Values of every type that a partition may have; the last of each is null.
VALUES: dict[str, tuple[IcebergType, list[Any]]] = {
    "boolean": (BooleanType(), [True, False, None]),
    "int": (IntegerType(), [-34, 34, None]),
    "long": (LongType(), [-34, 2**40, None]),
    "float": (FloatType(), [1.5, -0.0, None]),
    "double": (DoubleType(), [0.1, 0.0, None]),
    "date": (DateType(), [datetime.date(1969, 12, 31), datetime.date(2024, 2, 29), None]),
    "time": (TimeType(), [datetime.time(23, 59, 59, 999999), datetime.time(0), None]),
    "timestamp": (TimestampType(), [datetime.datetime(1969, 12, 31, 23, 0, 1), datetime.datetime(2024, 2, 29), None]),
    "timestamptz": (TimestamptzType(), [datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC), None, None]),
    "string": (StringType(), ["à/b", "", None]),
    "uuid": (UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes, None]),
    "fixed": (FixedType(3), [b"abc", b"\x00\xff\x01", None]),
    "binary": (BinaryType(), [b"abcd", b"\xff", None]),
    "decimal": (DecimalType(9, 2), [Decimal("-12.34"), Decimal("0.00"), None]),
}
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(4),
    TruncateTransform(2),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = local_catalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def rows(*pairs: tuple[int | None, str | None]) -> pa.Table:
    return pa.table(
        {"id": pa.array([i for i, _ in pairs], pa.int64()), "cat": pa.array([c for _, c in pairs], pa.string())}
    )


def contents(table: StreamTable, snapshot_id: int | None = None) -> list[tuple[Any, ...]]:
    read = read_rows(table.table, snapshot_id).to_pylist()
    return sorted((tuple(row.values()) for row in read), key=repr)


def of(table: StreamTable, path: str) -> Any:
    [file] = [file for file in table.files() if file.path == path]
    return file


def test_appends_are_read_by_both(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT, format_version=version)
    first = table.append(rows((1, "a"), (2, "b"), (3, "a"), (4, None)))
    table.append(rows((5, "b")))
    assert len(table.data_files()) == 4
    assert contents(table) == [(1, "a"), (2, "b"), (3, "a"), (4, None), (5, "b")]
    assert sorted(table.table.scan("cat = 'b'").to_arrow()["id"].to_pylist()) == [2, 5]
    assert contents(table, first) == [(1, "a"), (2, "b"), (3, "a"), (4, None)]
    assert table.table.current_snapshot().summary.operation == Operation.APPEND


def test_upserts_replace_older_rows_and_keep_their_own(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a"), (2, "b"), (None, "c")))
    table.upsert(rows((1, "A"), (None, "C"), (3, "D")), ["id"])
    assert contents(table) == [(1, "A"), (2, "b"), (3, "D"), (None, "C")]
    [delete] = table.delete_files()
    assert (delete.content, delete.equality_ids, delete.record_count) == (DataFileContent.EQUALITY_DELETES, (1,), 3)
    assert delete.sequence_number == max(file.sequence_number for file in table.data_files())
    assert pq.read_schema(delete.path.removeprefix("file://")).names == ["id"]


def test_upserts_stay_in_their_partitions(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT, format_version=version)
    table.append(rows((1, "a"), (1, "b"), (1, None)))
    table.upsert(rows((1, "a"), (1, None)), ["id"])
    assert contents(table) == [(1, "a"), (1, "b"), (1, None)]
    assert sorted(repr(file.partition) for file in table.delete_files()) == ["Record[None]", "Record[a]"]


def test_deletes_of_several_id_sets_in_one_commit(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a"), (2, "b"), (3, "c"), (4, None), (5, None)))
    delta = RowDelta(
        [
            *table.write_equality_deletes(rows((1, "-")), ["id"]),
            *table.write_equality_deletes(rows((None, "c")), ["cat"]),
            *table.write_equality_deletes(rows((4, None)), ["cat", "id"]),
        ]
    )
    table.commit(delta, properties={"writer": "stream"})
    assert contents(table) == [(2, "b"), (5, None)]
    assert sorted(file.equality_ids for file in table.delete_files()) == [(1,), (2,), (2, 1)]
    summary = table.table.current_snapshot().summary
    assert (summary.operation, summary["writer"]) == (Operation.DELETE, "stream")
    assert (summary["added-equality-delete-files"], summary["total-equality-deletes"]) == ("3", "3")


def test_a_delete_for_one_partition(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT)
    table.append(rows((1, "a"), (1, "b"), (1, None)))
    table.delete_where_equal(pa.table({"id": [1]}), ["id"], partition=Record(None))
    assert contents(table) == [(1, "a"), (1, "b")]


def test_a_delete_under_a_historic_spec_without_fields_is_global(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA)
    table.append(rows((1, "a"), (2, "a")))
    with table.table.update_spec() as update:
        update.add_identity("cat")
    table.append(rows((1, "b"), (3, "b")))
    table.delete_where_equal(pa.table({"id": [1]}), ["id"], spec_id=0)
    assert contents(table) == [(2, "a"), (3, "b")]
    [delete] = table.delete_files()
    assert delete.partition_key == (0, ())


@pytest.mark.parametrize("by_partition", [False, True], ids=["file", "partition"])
def test_position_deletes(catalog: SqlCatalog, by_partition: bool) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT)
    table.append(rows((1, "a"), (2, "a"), (3, "b"), (4, "b")))
    table.append(rows((5, "a"), (6, "a")))
    starting_with = {from_bytes(LongType(), file.lower_bounds[1]): file.path for file in table.data_files()}
    positions = {starting_with[1]: [0], starting_with[3]: [1, 0, 1], starting_with[5]: [1]}
    table.delete_positions(positions, by_partition=by_partition)
    assert contents(table) == [(2, "a"), (5, "a")]
    assert sorted(table.table.scan().to_arrow()["id"].to_pylist()) == [2, 5]
    deletes = table.delete_files()
    assert len(deletes) == (2 if by_partition else 3)
    for delete in deletes:
        named = pq.read_table(delete.path.removeprefix("file://"))["file_path"].to_pylist()
        assert delete.referenced_data_file == (named[0] if len(set(named)) == 1 else None)
        assert delete.lower_bounds[FILE_PATH_ID] == min(named).encode()
        assert delete.upper_bounds[FILE_PATH_ID] == max(named).encode()
        assert {delete.partition_key} == {of(table, path).partition_key for path in named}


def test_a_position_delete_of_a_row_from_the_same_commit(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA)
    data = table.write_data(rows((1, "a"), (1, "b")))
    deletes = table.write_position_deletes({data[0]: [0]})
    table.commit(RowDelta([*data, *deletes]))
    assert contents(table) == [(1, "b")]


def test_vectors_take_up_older_vectors(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT, format_version=3)
    table.append(rows((1, "a"), (2, "a"), (3, "b"), (4, "b")))
    a, b = sorted(table.data_files(), key=lambda file: repr(file.partition))
    table.delete_vector({a.path: [0], b.path: [1]})
    assert contents(table) == [(2, "a"), (3, "b")]
    assert len({file.path for file in table.delete_files()}) == 1
    table.delete_vector({b.path: [0, 1]})
    assert contents(table) == [(2, "a")]
    vectors = {file.referenced_data_file: file for file in table.delete_files()}
    assert {path: file.record_count for path, file in vectors.items()} == {a.path: 1, b.path: 2}
    assert vectors[b.path].partition_key == b.partition_key
    summary = table.table.current_snapshot().summary
    assert (summary["added-dvs"], summary["removed-dvs"], summary["total-position-deletes"]) == ("1", "1", "3")


def test_an_upgraded_table_keeps_its_deletes_and_gives_row_ids_with_the_next_snapshot(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA)
    table.append(rows((1, "a"), (2, "b"), (3, "c")))
    [file] = table.data_files()
    table.delete_positions({file.path: [0]})
    before = table.table.metadata
    table.upgrade(3)
    after = table.table.metadata
    assert (after.format_version, after.next_row_id, after.table_uuid) == (3, 0, before.table_uuid)
    assert contents(table) == [(2, "b"), (3, "c")]
    assert [file.first_row_id for file in table.data_files()] == [None]
    table.upsert(rows((2, "B")), ["id"])
    assert contents(table) == [(2, "B"), (3, "c")]
    assert sorted((file.first_row_id, file.record_count) for file in table.data_files()) in (
        [(0, 1), (1, 3)],
        [(0, 3), (3, 1)],
    )
    assert table.table.metadata.next_row_id == 4


def test_files_without_field_ids_go_by_the_name_mapping(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a"), (2, "b")), field_ids=False)
    [file] = table.data_files()
    assert b"PARQUET:field_id" not in (pq.read_schema(file.path.removeprefix("file://")).field("id").metadata or {})
    assert "schema.name-mapping.default" in table.table.properties
    table.delete_where_equal(pa.table({"id": [1]}), ["id"])
    assert contents(table) == [(2, "b")]


def test_a_partition_column_may_be_missing_in_the_files(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT)
    table.append(rows((1, "a"), (2, "b")), omit=["cat"])
    assert {tuple(pq.read_schema(file.path.removeprefix("file://")).names) for file in table.data_files()} == {("id",)}
    assert sorted(map(repr, (file.partition for file in table.data_files()))) == ["Record[a]", "Record[b]"]
    assert table.table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "cat": "a"}, {"id": 2, "cat": "b"}]


def test_a_text_is_one_name_and_not_its_letters(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT)
    table.append(rows((1, "a"), (2, "b")), omit="cat")
    assert {tuple(pq.read_schema(file.path.removeprefix("file://")).names) for file in table.data_files()} == {("id",)}
    table.delete_where_equal(rows((1, "a")), "id")
    assert [file.data_file.equality_ids for file in table.files() if file.data_file.equality_ids] == [[1]]
    table.remove_files(next(file.path for file in table.data_files()))
    assert len(table.data_files()) == 1


def test_evolution_between_commits(catalog: SqlCatalog, version: int) -> None:
    schema = Schema(NestedField(1, "id", IntegerType(), required=False), SCHEMA.fields[1])
    table = StreamTable.create(catalog, "db.t", schema, spec=BY_CAT, format_version=version)
    table.append(pa.table({"id": pa.array([1, 2], pa.int32()), "cat": ["a", "b"]}))
    with table.table.update_schema() as update:
        update.update_column("id", LongType())
        update.add_column("new", StringType())
        update.rename_column("cat", "kind")
    with table.table.update_spec() as spec:
        spec.remove_field("cat")
        spec.add_field("id", BucketTransform(4), "bucket")
    table.append(pa.table({"id": [2**40, 3], "kind": ["c", "d"], "new": ["x", "y"]}))
    table.append(pa.table({"id": [4], "kind": ["a"], "new": ["z"]}), spec_id=0)
    table.delete_where_equal(pa.table({"id": [3], "kind": ["d"]}), ["kind", "id"])
    assert contents(table) == [(1, "a", None), (1099511627776, "c", "x"), (2, "b", None), (4, "a", "z")]
    assert sorted({file.spec_id for file in table.data_files()}) == [0, 1]


def test_a_delete_on_a_column_that_is_dropped_later(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a"), (2, "b")))
    table.delete_where_equal(pa.table({"cat": ["a"]}), ["cat"])
    with table.table.update_schema() as update:
        update.delete_column("cat")
    assert table.table.schema().column_names == ["id"]
    assert [file.equality_ids for file in table.delete_files()] == [(2,)]
    table.append(pa.table({"id": [3]}))
    assert [file.record_count for file in table.data_files()] == [2, 1]


def test_keys_in_structs(catalog: SqlCatalog) -> None:
    inner = StructType(
        NestedField(3, "a", IntegerType(), required=False), NestedField(4, "b", StringType(), required=False)
    )
    schema = Schema(SCHEMA.fields[0], NestedField(2, "s", inner, required=False))
    table = StreamTable.create(catalog, "db.t", schema)
    whole = pa.table({"id": [1, 2], "s": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]})
    table.append(whole)
    table.upsert(whole.slice(1), ["s.b"])
    [delete] = table.delete_files()
    assert delete.equality_ids == (table.field_id("s.b"),)
    assert pq.read_table(delete.path.removeprefix("file://")).to_pylist() == [{"s": {"b": "y"}}]


@pytest.mark.parametrize(
    ("name", "transform"),
    [(name, transform) for transform in TRANSFORMS for name in VALUES if transform.can_transform(VALUES[name][0])],
    ids=str,
)
def test_partitions_of_every_type(catalog: SqlCatalog, version: int, name: str, transform: Transform[Any, Any]) -> None:
    kind, values = VALUES[name]
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "v", kind, required=False))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "v" if transform == IdentityTransform() else "p"))
    table = StreamTable.create(catalog, "db.t", schema, spec=spec, format_version=version)
    table.append(pa.table({"id": [1, 2, 3], "v": pa.array(values)}))
    expected = transform.transform(kind)
    for file in table.data_files():
        bound = file.lower_bounds.get(2)
        # The tuple is what the transform makes of the file's values; bounds of floats do not tell the zeros apart.
        if bound is not None and name not in ("float", "double"):
            value = uuid.UUID(bytes=bound) if name == "uuid" else from_bytes(kind, bound)
            assert expected(value) == file.partition[0]
    if name == "uuid" and isinstance(transform, (IdentityTransform, VoidTransform)):
        # iceberg-rust takes Avro's uuid for a string.
        assert table.table.scan().to_arrow().num_rows == 3
    else:
        assert sorted(row[0] for row in contents(table)) == [1, 2, 3]
    assert table.table.scan("id = 2").to_arrow().num_rows == 1


def test_metrics_are_full_and_row_groups_are_as_asked(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA)
    table.append(rows(*((n, None if n % 2 else "x" * 40) for n in range(100))), row_group_size=10)
    [file] = table.data_files()
    assert pq.read_metadata(file.path.removeprefix("file://")).num_row_groups == 10
    assert len(file.data_file.split_offsets or []) == 10
    assert (file.data_file.value_counts, file.null_value_counts) == ({1: 100, 2: 100}, {1: 0, 2: 50})
    assert (from_bytes(LongType(), file.lower_bounds[1]), from_bytes(LongType(), file.upper_bounds[1])) == (0, 99)
    assert (file.lower_bounds[2], file.upper_bounds[2]) == (b"x" * 16, b"x" * 15 + b"y")
    assert file.size == Path(file.path.removeprefix("file://")).stat().st_size


def test_removed_files_are_not_live(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a")))
    table.append(rows((2, "b")))
    table.remove_files([table.data_files()[0].path])
    assert contents(table) == [(2, "b")]


def test_a_branch_is_written_alone(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, format_version=version)
    table.append(rows((1, "a")))
    head = table.append(rows((2, "b")), branch="audit")
    assert contents(table) == [(1, "a")]
    assert contents(table, head) == [(1, "a"), (2, "b")]
    assert len(table.data_files("audit")) == 2


def test_writers_side_by_side(catalog: SqlCatalog) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA)
    errors: list[BaseException] = []

    def write(writer: int) -> None:
        try:
            for n in range(5):
                table.append(rows((writer * 10 + n, "x")))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(contents(table)) == 15
    assert len({s.sequence_number for s in table.table.metadata.snapshots}) == 15


def test_totals_reconcile_with_a_recount(catalog: SqlCatalog, version: int) -> None:
    table = StreamTable.create(catalog, "db.t", SCHEMA, spec=BY_CAT, format_version=version)
    table.append(rows((1, "a"), (2, "b"), (3, "a")))
    table.upsert(rows((1, "a"), (2, "b")), ["id"])
    victim = table.data_files()[0]
    if version == 2:
        table.delete_positions({victim.path: [0]})
    else:
        table.delete_vector({victim.path: [0]})
        table.delete_vector({victim.path: [0, 1] if victim.record_count > 1 else [0]})
    table.remove_files([table.data_files()[-1].path])
    files = table.files()
    data = [file for file in files if file.content == DataFileContent.DATA]
    summary = table.table.current_snapshot().summary
    counted = {
        "total-data-files": len(data),
        "total-delete-files": len(files) - len(data),
        "total-records": sum(file.record_count for file in data),
        "total-files-size": sum(file.content_size or file.size for file in files),
        "total-position-deletes": sum(
            file.record_count for file in files if file.content == DataFileContent.POSITION_DELETES
        ),
        "total-equality-deletes": sum(
            file.record_count for file in files if file.content == DataFileContent.EQUALITY_DELETES
        ),
    }
    assert {name: int(summary[name]) for name in counted} == counted
