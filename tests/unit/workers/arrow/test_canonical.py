"""Canonical keys: two values are the same key in Iceberg if and only if their canonical forms are."""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from pyspark.sql.pandas.types import from_arrow_type

from workers.arrow.canonical import canonical_array, canonical_type, canonical_value, is_ordered

ALL: list[PrimitiveType] = [
    BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), DecimalType(9, 2), DateType(), TimeType(),
    TimestampType(), TimestamptzType(), TimestampNanoType(), TimestamptzNanoType(), StringType(), UUIDType(),
    FixedType(3), BinaryType(), UnknownType(),
]  # fmt: skip
DAY = datetime.date(1969, 12, 31)
EARLY = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
EARLY_UTC = EARLY.replace(tzinfo=datetime.UTC)
LATE = datetime.time(23, 59, 59, 999999)
LATE_MICROS = 86_399_999_999
NUMBER = uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
SECOND_NANOS = 1_000_000_000


def bits(value: float, form: str = "d") -> int:
    """The bits of a float as a signed number."""
    return int(struct.unpack("<i" if form == "f" else "<q", struct.pack(f"<{form}", value))[0])


def array(values: list[Any], type_: pa.DataType) -> pa.Array:
    return pa.array([*values, None], type_)


#: Type, what a file holds (a null comes behind), the canonical values.
STORED: list[tuple[str, PrimitiveType, pa.Array, list[Any]]] = [
    ("boolean", BooleanType(), array([True, False], pa.bool_()), [True, False]),
    ("int", IntegerType(), array([-(2**31), 7], pa.int32()), [-(2**31), 7]),
    ("int in a byte", IntegerType(), array([-128, 7], pa.int8()), [-128, 7]),
    ("long", LongType(), array([-(2**63), 2**40], pa.int64()), [-(2**63), 2**40]),
    ("int to long", LongType(), array([-(2**31), 7], pa.int32()), [-(2**31), 7]),
    ("float", FloatType(), array([1.5, -0.0], pa.float32()), [bits(1.5, "f"), -(2**31)]),
    ("double", DoubleType(), array([1.5, -0.0, 0.0], pa.float64()), [bits(1.5), -(2**63), 0]),
    ("float to double", DoubleType(), array([1.5, -0.0, 0.0], pa.float32()), [bits(1.5), -(2**63), 0]),
    ("float that is no short double", DoubleType(), array([0.1], pa.float32()), [bits(float(np.float32(0.1)))]),
    ("decimal", DecimalType(9, 2), array([Decimal("-1.25")], pa.decimal128(9, 2)), [Decimal("-1.25")]),
    ("wider decimal", DecimalType(18, 2), array([Decimal("-1.25")], pa.decimal128(9, 2)), [Decimal("-1.25")]),
    ("decimal in 256 bits", DecimalType(38, 2), array([Decimal("1.25")], pa.decimal256(38, 2)), [Decimal("1.25")]),
    ("date", DateType(), array([DAY, datetime.date(1, 1, 1)], pa.date32()), [-1, -719162]),
    ("date in milliseconds", DateType(), array([DAY], pa.date64()), [-1]),
    ("date as a number", DateType(), array([-1], pa.int32()), [-1]),
    ("time", TimeType(), array([LATE], pa.time64("us")), [LATE_MICROS]),
    ("time in milliseconds", TimeType(), array([datetime.time(0, 0, 1)], pa.time32("ms")), [1_000_000]),
    ("time in nanoseconds", TimeType(), array([LATE_MICROS * 1000 + 999], pa.time64("ns")), [LATE_MICROS]),
    ("timestamp", TimestampType(), array([EARLY], pa.timestamp("us")), [-1]),
    ("timestamp in milliseconds", TimestampType(), array([-1], pa.timestamp("ms")), [-1000]),
    ("timestamp in nanoseconds", TimestampType(), array([-1, 1999], pa.timestamp("ns")), [-1, 1]),
    ("timestamp as a number", TimestampType(), array([-1], pa.int64()), [-1]),
    ("date to timestamp", TimestampType(), array([DAY], pa.date32()), [-86_400_000_000]),
    ("timestamptz", TimestamptzType(), array([EARLY_UTC], pa.timestamp("us", "UTC")), [-1]),
    ("timestamptz elsewhere", TimestamptzType(), array([EARLY_UTC], pa.timestamp("us", "Asia/Tokyo")), [-1]),
    ("timestamptz without a zone", TimestamptzType(), array([EARLY], pa.timestamp("us")), [-1]),
    ("timestamp_ns", TimestampNanoType(), array([-1, 1999], pa.timestamp("ns")), [-1, 1999]),
    ("date to timestamp_ns", TimestampNanoType(), array([DAY], pa.date32()), [-86_400 * SECOND_NANOS]),
    ("timestamptz_ns", TimestamptzNanoType(), array([-1], pa.timestamp("ns", "UTC")), [-1]),
    ("string", StringType(), array(["", "ä"], pa.string()), ["", "ä"]),
    ("large string", StringType(), array(["", "ä"], pa.large_string()), ["", "ä"]),
    ("string view", StringType(), array(["", "longer than twelve"], pa.string_view()), ["", "longer than twelve"]),
    ("bytes for a string", StringType(), array([b"", "ä".encode()], pa.binary()), ["", "ä"]),
    ("uuid", UUIDType(), array([NUMBER.bytes], pa.binary(16)), [NUMBER.bytes]),
    ("uuid of Arrow", UUIDType(), array([NUMBER.bytes], pa.uuid()), [NUMBER.bytes]),
    ("fixed", FixedType(3), array([b"abc"], pa.binary(3)), [b"abc"]),
    ("binary", BinaryType(), array([b"", b"\x00", b"\xff"], pa.binary()), [b"", b"\x00", b"\xff"]),
    ("large binary", BinaryType(), array([b"", b"\x00"], pa.large_binary()), [b"", b"\x00"]),
    ("dictionary", StringType(), array(["a", "b", "a"], pa.string()).dictionary_encode(), ["a", "b", "a"]),
    ("nulls alone", LongType(), pa.nulls(1), []),
    ("unknown", UnknownType(), pa.nulls(1), []),
]


@pytest.mark.parametrize(("type_", "stored", "expected"), [pytest.param(*c[1:], id=c[0]) for c in STORED])
def test_values_of_a_file(type_: PrimitiveType, stored: pa.Array, expected: list[Any]) -> None:
    made = canonical_array(stored, type_)
    assert made.type == canonical_type(type_)
    assert made.to_pylist() == [*expected, None]
    assert canonical_array(stored.slice(1), type_).to_pylist() == [*expected, None][1:]
    assert len(canonical_array(stored.slice(0, 0), type_)) == 0


@pytest.mark.parametrize("type_", ALL, ids=str)
def test_every_type_has_a_form(type_: PrimitiveType) -> None:
    assert from_arrow_type(canonical_type(type_))
    assert canonical_value(None, type_).type == canonical_type(type_)
    assert not canonical_value(None, type_).is_valid


def test_lists_are_no_keys() -> None:
    with pytest.raises(TypeError, match="cannot be an equality delete key"):
        canonical_type(ListType(1, LongType(), False))


def _nans(width: int) -> np.ndarray[Any, Any]:
    """Quiet, signalling, negative, and one with a payload."""
    if width == 4:
        return np.array([0x7FC00000, 0x7F800001, 0xFFC00000, 0x7FC01234], np.uint32).view(np.float32)
    return np.array([0x7FF8 << 48, (0x7FF0 << 48) + 1, 0xFFF8 << 48, (0x7FF8 << 48) + 99], np.uint64).view(np.float64)


@pytest.mark.parametrize(("type_", "width"), [(FloatType(), 4), (DoubleType(), 8), (DoubleType(), 4)], ids=str)
def test_every_nan_is_one_and_zeros_differ(type_: PrimitiveType, width: int) -> None:
    made = canonical_array(pa.array(_nans(width)), type_)
    assert len(set(made.to_pylist())) == 1
    assert canonical_value(math.nan, type_) == made[0]
    zeros = canonical_array(pa.array([0.0, -0.0], pa.float32() if width == 4 else pa.float64()), type_)
    assert zeros[0] != zeros[1]
    assert [canonical_value(0.0, type_), canonical_value(-0.0, type_)] == list(zeros)


def test_bytes_that_are_no_text_are_keys_all_the_same() -> None:
    made = canonical_array(pa.array([b"\xff", b"\xfe"]), StringType())
    assert made[0].as_buffer() != made[1].as_buffer()


@pytest.mark.parametrize(
    ("type_", "stored"),
    [
        (IntegerType(), pa.array([2**31], pa.int64())),
        (IntegerType(), pa.array([1.0])),
        (LongType(), pa.array(["1"])),
        (FloatType(), pa.array([0.1], pa.float64())),
        (DoubleType(), pa.array([1], pa.int64())),
        (BooleanType(), pa.array([1], pa.int32())),
        (DateType(), pa.array([0], pa.timestamp("us"))),
        (TimeType(), pa.array([0], pa.int32())),
        (TimestampType(), pa.array([0], pa.int32())),
        (DecimalType(9, 2), pa.array([Decimal("0.001")], pa.decimal128(9, 3))),
        (DecimalType(9, 2), pa.array([Decimal("12345678.90")], pa.decimal128(18, 2)).cast(pa.decimal128(20, 3))),
        (StringType(), pa.array([1])),
        (BinaryType(), pa.array(["a"])),
        (TimestampNanoType(), pa.array([datetime.date(9999, 1, 1)])),
    ],
    ids=str,
)
def test_other_types_are_refused(type_: PrimitiveType, stored: pa.Array) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  Arrow's errors are such
        canonical_array(stored, type_)


#: Type, a value in a partition tuple, in Python or in JSON, the canonical value.
VALUES: list[tuple[PrimitiveType, Any, Any]] = [
    (BooleanType(), True, True),
    (IntegerType(), 7, 7),
    (LongType(), 2**40, 2**40),
    (FloatType(), 1.5, bits(1.5, "f")),
    (FloatType(), 0.1, bits(0.1, "f")),
    (DoubleType(), 0.1, bits(0.1)),
    (DecimalType(9, 2), Decimal("1.2"), Decimal("1.20")),
    (DecimalType(9, 2), "1.20", Decimal("1.20")),
    (DecimalType(38, 10), Decimal("1234567890123456789012345678.9"), Decimal("1234567890123456789012345678.9")),
    (DateType(), -1, -1),
    (DateType(), DAY, -1),
    (DateType(), "1969-12-31", -1),
    (TimeType(), LATE, LATE_MICROS),
    (TimeType(), "23:59:59.999999", LATE_MICROS),
    (TimestampType(), EARLY, -1),
    (TimestampType(), "1969-12-31T23:59:59.999999", -1),
    (TimestamptzType(), EARLY_UTC, -1),
    (TimestamptzType(), EARLY_UTC.astimezone(datetime.timezone(datetime.timedelta(hours=9))), -1),
    (TimestamptzType(), "1969-12-31T23:59:59.999999+00:00", -1),
    (TimestampNanoType(), "1969-12-31T23:59:59.999999999", -1),
    (TimestamptzNanoType(), "1969-12-31T23:59:59.999999999+00:00", -1),
    (TimestampNanoType(), EARLY, -1000),
    (StringType(), "2020-01-01", "2020-01-01"),
    (UUIDType(), NUMBER, NUMBER.bytes),
    (UUIDType(), str(NUMBER), NUMBER.bytes),
    (UUIDType(), NUMBER.bytes, NUMBER.bytes),
    (FixedType(3), b"abc", b"abc"),
    (FixedType(3), "616263", b"abc"),
    (BinaryType(), b"", b""),
    (BinaryType(), "00ff", b"\x00\xff"),
]


@pytest.mark.parametrize(("type_", "value", "expected"), VALUES, ids=str)
def test_values_of_partitions_and_defaults(type_: PrimitiveType, value: Any, expected: Any) -> None:
    made = canonical_value(value, type_)
    assert made.type == canonical_type(type_)
    assert made.as_py() == expected


def test_bounds_of_floats_and_uuids_are_not_compared() -> None:
    assert is_ordered(LongType())
    assert not any(is_ordered(type_) for type_ in (FloatType(), DoubleType(), UUIDType()))
