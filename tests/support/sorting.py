"""A plain comparator for sort orders, value by value: the judge of whatever sorts by columns."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import PrimitiveType

from producer.model.plan import SortKey

#: Where a field of the test rows lies.
_NESTED = {21: ("a.b", ""), 32: ("deep", "map")}


def in_order(rows: pa.Table, schema: Schema, order: Sequence[SortKey]) -> list[int]:
    """Ids of the rows in a sort order; those that compare equal as they come."""
    keys = [_values(rows, schema, column) for column in order]

    def compare(one: int, other: int) -> int:
        for column, values in zip(order, keys, strict=True):
            if found := _compared(values[one], values[other], column):
                return found
        return 0

    ids = rows["id"].to_pylist()
    return [ids[index] for index in sorted(range(len(rows)), key=functools.cmp_to_key(compare))]


def _values(rows: pa.Table, schema: Schema, column: SortKey) -> list[Any]:
    type_ = schema.find_type(column.field_id)
    assert isinstance(type_, PrimitiveType)
    top, *below = _NESTED.get(column.field_id, (schema.find_field(column.field_id).name,))
    array = rows[top].combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    if pa.types.is_timestamp(array.type) or pa.types.is_time(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date(array.type):
        array = array.cast(pa.int32())
    values: list[Any] = array.to_pylist()
    for name in below:
        values = [None if value is None else value[name] for value in values]
    if column.transform != "identity":
        transform = parse_transform(column.transform)
        values = [transform.transform(type_)(value) for value in values]
    return values


def _compared(one: Any, other: Any, column: SortKey) -> int:
    if one is None or other is None:
        nulls = (other is None) - (one is None)
        return -nulls if not column.nulls_first else nulls
    if isinstance(one, str):
        one, other = one.encode(), other.encode()
    if isinstance(one, float):
        one, other = _total(one), _total(other)
    found = int(one > other) - int(one < other)
    return -found if column.descending else found


def _total(value: float) -> tuple[int, float, int]:
    """NaN at the outside by its sign, then numbers, the two zeros by their sign."""
    sign = -1 if struct.pack(">d", value)[0] & 0x80 else 1
    return (2 * sign, 0.0, 0) if math.isnan(value) else (0, value, sign)
