from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from producer.model.staged import StagedDataFile
from tests.support.anyrows import SCHEMA, column, leaves, optional, tables
from tests.support.memoryio import MemoryIO
from workers.arrow.schema import arrow_schema
from workers.formats.metrics import COUNTS, FULL, NONE, TRUNCATE, MetricsMode, above_bytes, above_text, modes_of
from workers.formats.parquet.data_file_writer import ParquetDataFileWriter

REPEATED = {26, 28, 30, 31, 34}
DEFAULT = "write.metadata.metrics.default"


def written(tables: list[pa.Table], properties: dict[str, str], schema: Schema = SCHEMA) -> StagedDataFile:
    with ParquetDataFileWriter(MemoryIO(), "memory://a", schema, properties) as writer:
        for table in tables:
            writer.write(table)
        return writer.close()


def single_values(bounds: Mapping[int, str]) -> dict[int, bytes]:
    return {field_id: bytes.fromhex(bound) for field_id, bound in bounds.items()}


def of_one(type_: IcebergType, values: list[Any] | pa.Array, **properties: str) -> StagedDataFile:
    """Metrics of a file with one column, 1."""
    schema = Schema(optional(1, "x", type_))
    arrow = arrow_schema(schema)
    array = values if isinstance(values, pa.Array) else pa.array(values, arrow.field(0).type)
    table = pa.table([array], schema=arrow)
    return written([table], {f"write.metadata.metrics.{name}": value for name, value in properties.items()}, schema)


def total_order(value: float) -> tuple[float, float]:
    return value, math.copysign(1, value)


def is_nan(value: Any) -> bool:
    return bool(value != value)


def bounded(
    type_: PrimitiveType, values: list[Any], lower: bytes | None, upper: bytes | None, length: int | None
) -> None:
    """Check bounds against all values."""
    present = [value for value in values if value is not None and not is_nan(value)]
    if not present:
        assert lower is None
        assert upper is None
        return
    if isinstance(type_, UUIDType):
        signed = {(value[0] >> 7, value[8] >> 7) for value in present}
        assert (lower, upper) == ((min(present), max(present)) if len(signed) == 1 else (None, None))
        return
    assert lower is not None
    low: Any = from_bytes(type_, lower)
    high: Any = None if upper is None else from_bytes(type_, upper)
    if isinstance(type_, FloatType | DoubleType):
        present, low, high = [*map(total_order, present)], total_order(low), total_order(high)
        assert low[0] == min(present)[0]
        assert high[0] == max(present)[0]
    if isinstance(type_, StringType | BinaryType) and length is not None:
        assert low == min(present)[:length]
        last = "\U0010ffff" if isinstance(type_, StringType) else b"\xff"
        if high is None:
            assert max(present)[:length] == last * length
            assert len(max(present)) > length
            return
        assert len(high) <= length
        assert len(max(present)) > length or high == max(present)
    elif not isinstance(type_, FloatType | DoubleType):
        assert (low, high) == (min(present), max(present))
    assert all(low <= value <= high for value in present)


@given(st.lists(tables(least=1), min_size=1, max_size=3), st.sampled_from(["full", "truncate(1)", "truncate(16)"]))
def test_metrics_are_those_of_the_rows(drawn: list[pa.Table], mode: str) -> None:
    length = None if mode == "full" else int(mode[9:-1])
    file = written(drawn, {DEFAULT: mode})
    rows = sum(table.num_rows for table in drawn)
    assert file.records == rows
    assert set(file.column_sizes) == set(leaves()) | REPEATED
    assert all(size > 0 for size in file.column_sizes.values())
    assert set(file.value_counts) == set(file.null_value_counts) == set(leaves())
    for field_id, (type_, names) in leaves().items():
        values = column(drawn, names)
        assert file.value_counts[field_id] == rows
        assert file.null_value_counts[field_id] == values.count(None)
        nans = sum(is_nan(value) for value in values) if isinstance(type_, FloatType | DoubleType) else None
        assert file.nan_value_counts.get(field_id) == nans
        bounded(
            type_,
            values,
            single_values(file.lower_bounds).get(field_id),
            single_values(file.upper_bounds).get(field_id),
            length,
        )


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6), st.integers(1, 4))
def test_text_above_is_the_least_of_its_length(text: str, length: int) -> None:
    above = above_text(text, length)
    if above is None:
        assert set(text[:length]) == {"\U0010ffff"}
        return
    above.encode()
    assert above >= text
    assert len(above) <= length
    # Nothing shorter or smaller would do: the character before the last is already too small.
    assert above == text or above[:-1] + chr(ord(above[-1]) - 1) <= text or ord(above[-1]) == 0xE000


@given(st.lists(st.sampled_from([0, 1, 254, 255]), max_size=6).map(bytes), st.integers(1, 4))
def test_bytes_above_are_the_least_of_their_length(value: bytes, length: int) -> None:
    above = above_bytes(value, length)
    if above is None:
        assert value[:length] == b"\xff" * length
        return
    assert above >= value
    assert len(above) <= length
    assert above == value or above[:-1] + bytes([above[-1] - 1]) <= value


@pytest.mark.parametrize(
    ("text", "length", "above"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abd"),
        ("ab\U0010ffffd", 3, "ac"),
        ("a\ud7ffz", 2, "a\ue000"),
        ("\U0010ffff\U0010ffffz", 2, None),
        ("\U0001f600x", 1, "\U0001f601"),
        ("abcd", None, "abcd"),
        ("", 1, ""),
    ],
)
def test_cut_text_is_raised(text: str, length: int | None, above: str | None) -> None:
    assert above_text(text, length) == above


def test_zeros_are_bounded_by_both() -> None:
    for values in ([0.0], [-0.0], [-0.0, 0.0]):
        file = of_one(DoubleType(), values)
        assert math.copysign(1, from_bytes(DoubleType(), single_values(file.lower_bounds)[1])) == -1
        assert math.copysign(1, from_bytes(DoubleType(), single_values(file.upper_bounds)[1])) == 1


def test_nan_is_no_bound() -> None:
    file = of_one(FloatType(), [float("nan"), 1.0, None, float("nan"), 2.0])
    assert (file.value_counts, file.null_value_counts, file.nan_value_counts) == ({1: 5}, {1: 1}, {1: 2})
    assert from_bytes(FloatType(), single_values(file.lower_bounds)[1]) == 1.0
    assert from_bytes(FloatType(), single_values(file.upper_bounds)[1]) == 2.0
    assert of_one(FloatType(), [float("nan"), None]).lower_bounds == {}


@pytest.mark.parametrize(
    ("unscaled", "expected"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "0080"),
        (-128, "80"),
        (-129, "ff7f"),
        (-1, "ff"),
        (10**38 - 1, "4b3b4ca85a86c47a098a223fffffffff"),
    ],
)
def test_decimals_take_the_fewest_bytes(unscaled: int, expected: str) -> None:
    scaled = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -4))
    assert of_one(DecimalType(38, 4), [scaled]).lower_bounds[1] == expected


def test_uuids_have_bounds_where_all_readers_order_them_alike() -> None:
    early, late = uuid.UUID(int=1 << 120), uuid.UUID(int=1 << 126)
    assert of_one(UUIDType(), [late.bytes, None, early.bytes]).lower_bounds == {1: early.bytes.hex()}
    sliced = pa.array([uuid.UUID(int=1 << 127).bytes, early.bytes, late.bytes], pa.binary(16)).slice(1)
    assert of_one(UUIDType(), sliced).lower_bounds == {1: early.bytes.hex()}
    for other in (uuid.UUID(int=1 << 127), uuid.UUID(int=(1 << 120) + (1 << 63))):
        assert of_one(UUIDType(), [early.bytes, other.bytes]).upper_bounds == {}


def test_text_that_is_none_has_no_bounds() -> None:
    schema = Schema(optional(1, "x", StringType()))
    arrow = arrow_schema(schema)
    bad = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    assert written([pa.table([bad], schema=arrow)], {}, schema).upper_bounds == {}


@pytest.mark.parametrize("rows", [[1, 2, 3], [None], [2**31 - 1, -(2**31)]])
def test_slices_are_measured_and_not_what_they_are_cut_from(rows: list[int | None]) -> None:
    type_ = StructType(optional(2, "y", LongType()))
    schema = Schema(optional(1, "x", type_))
    arrow = arrow_schema(schema)
    array = pa.array([{"y": -(2**60)}, *({"y": row} for row in rows), None], arrow.field(0).type)
    file = written([pa.table([array], schema=arrow).slice(1)], {}, schema)
    bounded(LongType(), rows, single_values(file.lower_bounds).get(2), single_values(file.upper_bounds).get(2), None)
    assert file.null_value_counts == {2: rows.count(None) + 1}


def test_modes_leave_out_what_they_say() -> None:
    nothing, counted = of_one(DoubleType(), [1.0], default="none"), of_one(DoubleType(), [1.0], default="counts")
    assert (nothing.column_sizes, nothing.value_counts, nothing.nan_value_counts) == ({}, {}, {})
    assert (counted.value_counts, counted.nan_value_counts, counted.lower_bounds) == ({1: 1}, {1: 0}, {})
    assert set(counted.column_sizes) == {1}


def test_columns_have_modes_of_their_own() -> None:
    properties = {
        DEFAULT: "counts",
        "write.metadata.metrics.column.string": "FULL",
        "write.metadata.metrics.column.outer.inner.double": "truncate(3)",
        "write.metadata.metrics.column.outer.list.element": "none",
        "write.metadata.metrics.column.int": "truncate(0)",
        "write.metadata.metrics.column.nobody": "none",
    }
    modes = modes_of(SCHEMA, properties, sorted_ids=[9, 15])
    assert modes.pop(15) == FULL
    assert modes.pop(23) == MetricsMode(length=3)
    assert modes.pop(26) == NONE
    assert modes.pop(9) == TRUNCATE
    assert set(modes.values()) == {COUNTS}
    assert set(modes_of(SCHEMA, {DEFAULT: "sometimes"}).values()) == {TRUNCATE}
    assert modes_of(SCHEMA, {DEFAULT: "full"}, sorted_ids=[9])[9] == FULL


def test_only_so_many_columns_have_a_mode_unless_the_table_says_so() -> None:
    wide = Schema(
        optional(1000, "nested", StructType(optional(1001, "a", LongType()), optional(1002, "b", LongType()))),
        optional(2000, "map", MapType(2001, LongType(), 2002, ListType(2003, LongType()))),
        *(optional(number, f"c{number}", LongType()) for number in range(1, 100)),
    )
    modes = modes_of(wide, {})
    assert [field_id for field_id, mode in modes.items() if mode == TRUNCATE] == [*range(1, 100), 1001]
    assert {modes[1002], modes[2001], modes[2003]} == {NONE}
    assert set(modes_of(wide, {DEFAULT: "truncate(16)"}).values()) == {TRUNCATE}
    most = "write.metadata.metrics.max-inferred-column-defaults"
    assert set(modes_of(wide, {most: "103"}).values()) == {TRUNCATE}
    assert set(modes_of(wide, {most: "0"}).values()) == {NONE}
    assert modes_of(wide, {most: "-1"}) == modes
    with pytest.raises(ValueError, match=f"{most} is some, not a whole number"):
        modes_of(wide, {most: "some"})
    assert modes_of(wide, {most: "0", "write.metadata.metrics.column.c5": "full"}, sorted_ids=[7]) == {
        **dict.fromkeys(modes, NONE),
        5: FULL,
        7: TRUNCATE,
    }
