"""Key columns that were dropped, renamed, promoted or added after the files were written."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from tests.integration.conftest import Create
from tests.support.scenario import check, evolve, run

pytestmark = pytest.mark.spark

TWO = pa.schema([("id", pa.int64()), ("status", pa.string())])


def table(schema: pa.Schema, *rows: tuple[Any, ...]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def field(field_id: int, name: str, type_: str, **more: Any) -> dict[str, Any]:
    """A column as metadata has it."""
    return {"id": field_id, "name": name, "required": False, "type": type_, **more}


def test_a_key_column_that_was_dropped(create: Create, version: int) -> None:
    """One of the same name that came later is another column."""
    stream = create(TWO, version)
    stream.append(table(TWO, (1, "gone"), (2, "kept"), (3, None)))
    stream.delete_where_equal(pa.table({"status": ["gone"]}), ["status"])
    with stream.table.update_schema() as update:
        update.delete_column("status")
    with stream.table.update_schema() as update:
        update.add_column("status", StringType())
    stream.append(table(TWO, (4, "gone")))
    check(stream, [(2, None), (3, None), (4, "gone")], positions=1, files=1, rust=False)


def test_key_columns_that_were_renamed_and_moved(create: Create, version: int) -> None:
    stream = create(TWO, version)
    stream.append(table(TWO, (1, "a"), (2, "b"), (3, "c")))
    stream.delete_where_equal(pa.table({"status": ["a"]}), ["status"])
    with stream.table.update_schema() as update:
        update.rename_column("id", "old").rename_column("status", "id")
        update.move_first("status")
    stream.delete_where_equal(pa.table({"id": ["b"]}), ["id"])
    stream.append(pa.table({"id": ["a"], "old": [9]}))
    check(stream, [("c", 3), ("a", 9)], positions=2, files=1)


def test_a_key_column_that_came_later_is_null_before(create: Create, version: int) -> None:
    stream = create(TWO, version)
    stream.append(table(TWO, (1, "a"), (2, "b")))
    with stream.table.update_schema() as update:
        update.add_column("more", IntegerType())
    wide = TWO.append(pa.field("more", pa.int32()))
    stream.append(table(wide, (3, "c", None), (4, "d", 1)))
    stream.delete_where_equal(table(wide, (None, "a", None), (None, "c", None), (None, "d", None)), ["more", "status"])
    check(stream, [(2, "b", None), (4, "d", 1)], positions=2, files=2)
    stream.delete_where_equal(pa.table({"more": pa.array([None], pa.int32())}), ["more"])
    check(stream, [(4, "d", 1)], positions=1, files=1)


DEFAULTS: dict[str, tuple[str, Any, Any, pa.DataType, Any]] = {
    "text": ("string", "x", "x", pa.string(), "y"),
    "date": ("date", "2024-05-01", datetime.date(2024, 5, 1), pa.date32(), datetime.date(2024, 5, 2)),
    "decimal": ("decimal(9, 2)", "1.50", Decimal("1.50"), pa.decimal128(9, 2), Decimal("1.51")),
    "time": ("timestamp", "1969-12-31T23:59:59.999999", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
             pa.timestamp("us"), datetime.datetime(1970, 1, 1)),
    "bytes": ("binary", "00ff", b"\x00\xff", pa.binary(), b"00ff"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFAULTS)
def test_initial_defaults(create: Create, kind: str) -> None:
    """Rows from before the column have its default: null does not hit them, the default does, also in a pair."""
    type_, json, value, arrow, other = DEFAULTS[kind]
    stream = create(TWO, 3)
    stream.append(table(TWO, (1, "a"), (2, "b"), (3, "c")))
    evolve(
        stream,
        field(1, "id", "long"),
        field(2, "status", "string"),
        field(3, "more", type_, **{"initial-default": json, "write-default": json}),
    )
    wide = TWO.append(pa.field("more", arrow))
    stream.append(table(wide, (4, "d", None), (5, "e", value), (6, "f", other)))
    stream.delete_where_equal(pa.table({"more": pa.array([None], arrow)}), ["more"])
    stream.delete_where_equal(table(wide, (1, None, value), (2, None, other)), ["id", "more"])
    rows = [(2, "b", value), (3, "c", value), (5, "e", value), (6, "f", other)]
    check(stream, rows, positions=2, files=2, rust=False)
    stream.delete_where_equal(pa.table({"more": pa.array([value], arrow)}), ["more"])
    check(stream, rows[-1:], positions=3, files=2, rust=False)


def test_a_default_inside_a_struct_that_is_null(create: Create) -> None:
    """A field of a null struct is null, whatever its default is."""
    struct = pa.struct([("x", pa.int64())])
    stream = create(pa.schema([("id", pa.int64()), ("s", struct)]), 3)
    stream.append(pa.table({"id": [1, 2, 3], "s": pa.array([{"x": 1}, None, {"x": None}], struct)}))
    fields = [field(3, "x", "long"), field(4, "y", "long", **{"initial-default": 7, "write-default": 7})]
    evolve(stream, field(1, "id", "long"), {**field(2, "s", ""), "type": {"type": "struct", "fields": fields}})
    wide = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    stream.delete_where_equal(pa.table({"s": pa.array([{"y": 7}], wide)}), ["s.y"])
    assert run(stream).added_position_deletes == 2
    assert stream.table.scan(selected_fields=("id",)).to_arrow()["id"].to_pylist() == [2]


def test_promoted_keys(create: Create, version: int) -> None:
    """Files and deletes from before and after meet in the type of today."""
    stream = create(
        Schema(
            NestedField(1, "n", IntegerType(), required=False),
            NestedField(2, "price", DecimalType(9, 2), required=False),
            NestedField(3, "ratio", FloatType(), required=False),
        ),
        version,
    )
    old = pa.schema([("n", pa.int32()), ("price", pa.decimal128(9, 2)), ("ratio", pa.float32())])
    new = pa.schema([("n", pa.int64()), ("price", pa.decimal128(18, 2)), ("ratio", pa.float64())])
    given = [(i, Decimal(f"{i}.50"), i / 4) for i in range(1, 9)]
    stream.append(table(old, *given))
    stream.delete_where_equal(table(old, given[0]), ["n"])
    stream.delete_where_equal(table(old, given[1]), ["price"])
    stream.delete_where_equal(table(old, given[2]), ["ratio"])
    with stream.table.update_schema() as update:
        update.update_column("n", LongType())
        update.update_column("price", DecimalType(18, 2))
        update.update_column("ratio", DoubleType())
    more = [(5_000_000_000, Decimal("1234567890123.50"), 0.1), (9, Decimal("9.50"), 2.25)]
    stream.append(table(new, *more))
    stream.delete_where_equal(table(new, given[3], more[0]), ["n"])
    stream.delete_where_equal(table(new, given[4]), ["price"])
    stream.delete_where_equal(table(new, given[5]), ["ratio"])
    stream.delete_where_equal(table(new, given[6]), ["ratio", "n", "price"])
    check(stream, [given[7], more[1]], positions=8, files=2)


def test_dates_that_became_timestamps(create: Create) -> None:
    day, noon = datetime.date(1969, 12, 31), datetime.datetime(1969, 12, 31, 12)
    stream = create(Schema(NestedField(1, "d", DateType(), required=False)), 3)
    stream.append(pa.table({"d": pa.array([day, datetime.date(2024, 5, 1), None])}))
    stream.delete_where_equal(pa.table({"d": pa.array([datetime.date(2024, 5, 1)])}), ["d"])
    evolve(stream, field(1, "d", "timestamp"))
    midnight = datetime.datetime(1969, 12, 31)
    stream.append(pa.table({"d": pa.array([midnight, noon], pa.timestamp("us"))}))
    stream.delete_where_equal(pa.table({"d": pa.array([midnight], pa.timestamp("us"))}), ["d"])
    check(stream, [(None,), (noon,)], positions=3, files=2, rust=False)


def test_files_without_field_ids(create: Create, version: int) -> None:
    """Their columns are found through the table's name mapping, nested ones too."""
    inner = StructType(NestedField(4, "key", StringType(), required=False))
    stream = create(
        Schema(
            NestedField(1, "id", LongType(), required=False),
            NestedField(2, "status", StringType(), required=False),
            NestedField(3, "s", inner, required=False),
        ),
        version,
    )
    struct = pa.struct([("key", pa.string())])
    given = pa.table(
        {"id": [1, 2, 3, 4], "status": list("abcd"), "s": pa.array([{"key": "x"}, {"key": "y"}, None, {}], struct)}
    )
    stream.append(given, field_ids=False)
    with stream.table.update_schema() as update:
        update.rename_column("id", "number")
    stream.delete_where_equal(pa.table({"number": [1]}), ["number"])
    stream.delete_where_equal(pa.table({"s": pa.array([{"key": "y"}], struct)}), ["s.key"])
    check(stream, [(3, "c", None), (4, "d", {"key": None})], positions=2, files=1, rust=False, judge=False)


def test_keys_inside_structs(create: Create, version: int) -> None:
    """A struct that is null has null fields: one null key hits both."""
    deep = pa.struct([("x", pa.int64()), ("in", pa.struct([("key", pa.string())]))])
    stream = create(pa.schema([("id", pa.int64()), ("s", deep)]), version)
    values = [{"x": 1, "in": {"key": "a"}}, {"x": 2, "in": {"key": None}}, {"x": 3, "in": None}, None,
              {"x": 5, "in": {"key": "b"}}]  # fmt: skip
    stream.append(pa.table({"id": [1, 2, 3, 4, 5], "s": pa.array(values, deep)}))
    stream.delete_where_equal(
        pa.table({"s": pa.array([{"in": {"key": "b"}}, {"in": {"key": "no"}}], deep)}), ["s.in.key"]
    )
    check(stream, [(i + 1, v) for i, v in enumerate(values[:4])], positions=1, files=1)
    stream.delete_where_equal(pa.table({"s": pa.array([None], deep)}), ["s.in.key"])
    check(stream, [(1, values[0])], positions=3, files=1)
