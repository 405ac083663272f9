"""All that a rewrite must not change, for each strategy: values of every type, how and where files are written."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
    UnknownType,
)

from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Status
from tasks.testing import StreamTable
from tests.integration.conftest import Create
from tests.integration.test_types import KEYS
from tests.support.compaction import check, compact
from tests.support.scenario import evolve
from workers.arrow.schema import arrow_schema, data_file_schema

pytestmark = pytest.mark.spark

ALL = {"rewrite-all": "true"}
STRATEGIES = [{}, {"sort-order": "k12 desc nulls last, id"}, {"zorder": "k2,k12,k4"}]
AWKWARD: dict[int, Any] = {3: math.nan, 4: -0.0, 12: "", 15: b""}


def deep(types: list[tuple[PrimitiveType, Any, Any]]) -> tuple[NestedField, ...]:
    """A list of structs, a map to lists, and a struct in a struct, of all types."""
    ids = iter(range(100, 1000))
    inner = StructType(*(NestedField(next(ids), f"k{n}", t, required=False) for n, (t, _, _) in enumerate(types)))
    return (
        NestedField(next(ids), "list", ListType(next(ids), inner, element_required=False), required=False),
        NestedField(
            next(ids),
            "map",
            MapType(
                next(ids),
                StringType(),
                next(ids),
                ListType(next(ids), BinaryType(), element_required=False),
                value_required=False,
            ),
            required=False,
        ),
        NestedField(
            next(ids), "struct", StructType(NestedField(next(ids), "in.ner", inner, required=False)), required=False
        ),
    )


@pytest.mark.parametrize("options", STRATEGIES, ids=["binpack", "sort", "zorder"])
def test_values_of_every_type(create: Create, version: int, options: dict[str, str]) -> None:
    types = list(KEYS)
    if version >= 3:
        moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
        types += [(TimestampNanoType(), moment, moment), (TimestamptzNanoType(), moment, moment)]
    plain = (NestedField(10 + n, f"k{n}", type_, required=False) for n, (type_, _, _) in enumerate(types))
    unknown = [NestedField(90, "nothing", UnknownType(), required=False)] if version >= 3 else []
    schema = Schema(NestedField(1, "id", LongType(), required=False), *plain, *deep(types), *unknown)
    stream = create(schema, version)
    arrow = arrow_schema(data_file_schema(stream.table.schema(), lineage=False))
    for first in range(0, 12, 3):
        rows = [row(n, types) for n in range(first, first + 3)]
        stream.append(pa.Table.from_pylist(rows, schema=arrow), row_group_size=2)
    stream.delete_where_equal(pa.table({"id": [4]}), ["id"])
    # iceberg-rust knows neither nanoseconds nor columns of unknown type in nested rows.
    check(stream, ALL | options, fixed=False, rust=version < 3)
    assert sorted(stream.table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist()) == [
        0,
        1,
        2,
        3,
        *range(5, 12),
    ]


def row(n: int, types: list[tuple[PrimitiveType, Any, Any]]) -> dict[str, Any]:
    """The n-th row: values, what is almost the same, nulls, and what is awkward."""
    kinds = {0: 1, 1: 2}
    flat = {
        f"k{k}": AWKWARD.get(k, near) if n % 4 == 3 else None if n % 4 == 2 else (key, near)[kinds[n % 4] - 1]
        for k, (_, key, near) in enumerate(types)
    }
    return {
        "id": n,
        **flat,
        "list": None if n == 5 else [flat, None, flat][: n % 4],
        "map": None if n == 6 else [(f"key{m}", None if m == 1 else [b"x" * m, None]) for m in range(n % 4)],
        "struct": None if n == 7 else {"in.ner": None if n == 8 else flat},
    }


def written(stream: StreamTable) -> tuple[LiveFile, pq.FileMetaData]:
    """The one data file, and its footer."""
    [file] = stream.data_files()
    return file, pq.read_metadata(file.path.removeprefix("file://"))


PLAIN = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))


def texts(*ids: int) -> pa.Table:
    """Rows with text that is longer than bounds are."""
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"a text of more than sixteen {n}" for n in ids]})


class TestWriting:
    """``write.*`` properties of the table decide how files are written and where they go."""

    def test_parquet(self, create: Create) -> None:
        properties = {
            "write.parquet.compression-codec": "gzip",
            "write.parquet.compression-level": "2",
            "write.parquet.row-group-limit": "40",
            "write.parquet.bloom-filter-enabled.column.id": "true",
        }
        stream = create(PLAIN, properties=properties)
        for n in range(5):
            stream.append(texts(*range(n * 20, n * 20 + 20)))
        check(stream)
        _, footer = written(stream)
        assert footer.row_group(0).column(0).compression == "GZIP"
        assert max(footer.row_group(n).num_rows for n in range(footer.num_row_groups)) <= 48

    @pytest.mark.parametrize(
        ("mode", "lower", "upper"),
        [
            ("truncate(16)", b"a text of more t", b"a text of more u"),
            ("truncate(4)", b"a te", b"a tf"),
            ("full", b"a text of more than sixteen 0", b"a text of more than sixteen 9"),
            ("counts", None, None),
            ("none", None, None),
        ],
    )
    def test_metrics(self, create: Create, mode: str, lower: bytes | None, upper: bytes | None) -> None:
        stream = create(PLAIN, properties={"write.metadata.metrics.column.text": mode})
        for n in range(5):
            stream.append(texts(n * 2, n * 2 + 1))
        check(stream)
        file, _ = written(stream)
        assert (file.lower_bounds.get(2), file.upper_bounds.get(2)) == (lower, upper)
        assert file.data_file.value_counts.get(2) == (None if mode == "none" else 10)
        assert (file.lower_bounds[1], file.data_file.value_counts[1]) == ((0).to_bytes(8, "little"), 10)

    def test_where(self, create: Create, tmp_path: Any) -> None:
        properties = {"write.data.path": f"file://{tmp_path}/elsewhere", "write.object-storage.enabled": "true"}
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "text"))
        stream = create(PLAIN, spec=spec, properties=properties)
        for n in range(5):
            stream.append(pa.table({"id": pa.array([n], pa.int64()), "text": ["a/b"]}))
        check(stream)
        file, _ = written(stream)
        assert file.path.startswith(f"file://{tmp_path}/elsewhere/")
        assert "/text=a%2Fb/" in file.path
        assert file.path.removeprefix(f"file://{tmp_path}/elsewhere/").count("/") >= 4, "hashed folders in front"

    def test_the_tables_sort_order(self, create: Create) -> None:
        stream = create(PLAIN)
        with stream.table.update_sort_order() as update:
            update.desc("id", IdentityTransform())
        for n in range(5):
            stream.append(texts(*range(n * 3, n * 3 + 3)))
        check(stream, {"strategy": "sort"})
        file, _ = written(stream)
        assert file.data_file.sort_order_id == stream.table.sort_order().order_id
        ids = pq.read_table(file.path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        check(stream, {"strategy": "sort", "sort-order": "id asc", **ALL}, fixed=False)
        file, _ = written(stream)
        assert file.data_file.sort_order_id == 0, "it is not the table's"


class TestSchemas:
    """Files come out in the current schema."""

    def test_changed_columns(self, create: Create, version: int) -> None:
        schema = Schema(
            NestedField(1, "id", IntegerType(), required=False),
            NestedField(2, "gone", StringType(), required=False),
            NestedField(3, "old", StringType(), required=False),
        )
        stream = create(schema, version)
        for n in range(5):
            stream.append(pa.table({"id": pa.array([n], pa.int32()), "gone": ["x"], "old": [str(n)]}))
        with stream.table.update_schema() as update:
            update.delete_column("gone")
            update.rename_column("old", "new")
            update.update_column("id", LongType())
            update.add_column("more", StringType())
        check(stream)
        _, footer = written(stream)
        arrow = footer.schema.to_arrow_schema()
        lineage = ["_row_id", "_last_updated_sequence_number"] if version >= 3 else []
        assert arrow.names == ["id", "new", "more", *lineage]
        assert arrow.field("id").type == pa.int64()
        assert sorted(stream.table.scan().to_arrow()["new"].to_pylist()) == list("01234")

    def test_defaults_are_written_out(self, create: Create) -> None:
        stream = create(Schema(NestedField(1, "id", LongType(), required=False)), 3)
        for n in range(5):
            stream.append(pa.table({"id": pa.array([n], pa.int64())}))
        with stream.table.update_schema() as update:
            update.add_column("n", LongType(), default_value=7)
        check(stream)
        file, _ = written(stream)
        read = pq.read_table(file.path.removeprefix("file://"))
        assert read["n"].to_pylist() == [7] * 5


@pytest.mark.parametrize(
    ("type_", "says"),
    [
        ("geometry", "geometry"),
        ({"type": "list", "element-id": 3, "element-required": False, "element": "unknown"}, "list<unknown>"),
        (
            {"type": "map", "key-id": 3, "key": "int", "value-id": 4, "value-required": False, "value": "unknown"},
            "map<int, unknown>",
        ),
        (
            {"type": "struct", "fields": [{"id": 3, "name": "u", "required": False, "type": "unknown"}]},
            "struct<3: u: optional unknown>",
        ),
    ],
)
def test_a_type_that_is_not_rewritten_is_named(create: Create, type_: Any, says: str) -> None:
    """At once, and not after so many attempts."""
    schema = Schema(NestedField(1, "id", LongType(), required=False))
    stream = create(schema, 3)
    for n in range(5):
        stream.append(pa.table({"id": pa.array([n], pa.int64())}))
    evolve(
        stream,
        {"id": 1, "name": "id", "required": False, "type": "long"},
        {"id": 2, "name": "place", "required": False, "type": type_},
    )
    location = stream.table.metadata_location
    report = compact(stream)
    assert report.status is Status.REFUSED
    assert report.reason == f"Column place of {stream.identifier} is of type {says}: it is not compacted so far."
    assert stream.table.metadata_location == location


def test_decimals_keep_their_digits(create: Create) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "d", KEYS[7][0], required=False))
    stream = create(schema)
    values = [Decimal("1234567890123456789012345678.0000000001"), Decimal("-0.0000000001"), None]
    for n, value in enumerate([*values, *values]):
        stream.append(pa.table({"id": pa.array([n], pa.int64()), "d": pa.array([value], pa.decimal128(38, 10))}))
    check(stream, {"sort-order": "d"})
    read = pq.read_table(stream.data_files()[0].path.removeprefix("file://"))["d"].to_pylist()
    assert read == [None, None, *sorted(v for v in values + values if v is not None)]
