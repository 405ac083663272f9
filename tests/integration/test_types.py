"""Keys of every type that Iceberg and Parquet have."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.integration.conftest import Create
from tests.support.scenario import check

pytestmark = pytest.mark.spark

MOMENT = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
#: Type, the key that is deleted, one that is almost the same.
KEYS: list[tuple[PrimitiveType, Any, Any]] = [
    (BooleanType(), False, True),
    (IntegerType(), -(2**31), 2**31 - 1),
    (LongType(), 2**53 + 1, 2**53),
    (FloatType(), 0.5, 0.25),
    (DoubleType(), 0.1, 0.1 + 2**-56),
    (DecimalType(9, 2), Decimal("-1.25"), Decimal("1.25")),
    (DecimalType(18, 0), Decimal(10**17), Decimal(10**17 + 1)),
    (DecimalType(38, 10), Decimal("1234567890123456789012345678.0000000001"), Decimal("1234567890123456789012345678")),
    (DateType(), datetime.date(1969, 12, 31), datetime.date(1970, 1, 1)),
    (TimeType(), datetime.time(23, 59, 59, 999999), datetime.time(23, 59, 59, 999998)),
    (TimestampType(), MOMENT, datetime.datetime(1970, 1, 1)),
    (TimestamptzType(), MOMENT.replace(tzinfo=datetime.UTC), datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)),
    (StringType(), "ä\U0001f600", "a\u0308\U0001f600"),
    (UUIDType(), UUID(int=2**127).bytes, UUID(int=2**127 - 1).bytes),
    (FixedType(3), b"\xff\x00\x01", b"\xff\x00\x02"),
    (BinaryType(), b"\x00\xff", b"\x00\xff\x00"),
]


def test_every_type(create: Create, version: int) -> None:
    """Row n is deleted through column n; a row of neighbours and a row of nulls stay."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        *(NestedField(10 + n, f"k{n}", type_, required=False) for n, (type_, _, _) in enumerate(KEYS)),
    )
    stream = create(schema, version)
    arrow = schema_to_pyarrow(stream.table.schema(), include_field_ids=False)
    neighbours = [near for _, _, near in KEYS]
    rows = [[n, *neighbours[:n], key, *neighbours[n + 1 :]] for n, (_, key, _) in enumerate(KEYS)]
    kept = [[100, *neighbours], [101, *([None] * len(KEYS))]]
    columns = zip(*rows, *kept, strict=True)
    stream.append(
        pa.table([pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], schema=arrow), row_group_size=7
    )
    for n, (_, key, _) in enumerate(KEYS):
        stream.delete_where_equal(pa.table({f"k{n}": pa.array([key], arrow.field(f"k{n}").type)}), [f"k{n}"])
    check(stream, kept, positions=len(KEYS), files=1)


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()], ids=str)
def test_floats_are_equal_by_bits(create: Create, version: int, type_: pa.DataType) -> None:
    """Every NaN is one key; zero and minus zero are two."""
    stream = create(pa.schema([("id", pa.int64()), ("x", type_)]), version)
    values = [math.nan, -math.nan, 0.0, -0.0, None, math.inf, 1.5]
    stream.append(pa.table({"id": pa.array(range(len(values))), "x": pa.array(values, type_)}))
    stream.delete_where_equal(pa.table({"x": pa.array([math.nan, -0.0], type_)}), ["x"])
    left = [(2, 0.0), (4, None), (5, math.inf), (6, 1.5)]
    check(stream, left, positions=3, files=1)
    stream.delete_where_equal(pa.table({"x": pa.array([0.0, None, math.inf], type_)}), ["x"])
    check(stream, left[3:], positions=3, files=1)
