"""Transforms of columns against PyIceberg's, value by value."""

from __future__ import annotations

import random
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pytest
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
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from tests.support.rows import value
from workers.arrow.schema import arrow_type
from workers.arrow.transforms import apply_transform, hash_bytes, hash_longs

_TIMES = [TimestampType(), TimestamptzType(), TimestampNanoType(), TimestamptzNanoType()]
_BUCKETED = [
    IntegerType(), LongType(), DateType(), TimeType(), *_TIMES, StringType(), BinaryType(), UUIDType(), FixedType(7),
    DecimalType(9, 2), DecimalType(30, 5),
]  # fmt: skip
_CUT = [IntegerType(), LongType(), StringType(), BinaryType(), DecimalType(9, 2), DecimalType(30, 5)]
_CASES: list[tuple[PrimitiveType, Transform[Any, Any]]] = [
    *((type_, BucketTransform(buckets)) for type_ in _BUCKETED for buckets in (1, 16, 1000)),
    *((type_, TruncateTransform(width)) for type_ in _CUT for width in (1, 3, 10)),
    *((type_, make()) for type_ in [DateType(), *_TIMES] for make in (YearTransform, MonthTransform, DayTransform)),
    *((type_, HourTransform()) for type_ in _TIMES),
    *((type_, make()) for type_ in [BooleanType(), StringType()] for make in (IdentityTransform, VoidTransform)),
]


@pytest.mark.parametrize(("source", "transform"), _CASES, ids=str)
def test_every_transform_of_every_type(source: PrimitiveType, transform: Transform[Any, Any]) -> None:
    some = random.Random(7)
    type_ = arrow_type(source)
    values = [None if some.random() < 0.1 else _value(type_, some) for _ in range(300)]
    array = pa.array([None, *values, None], type_).slice(1, 300)
    expected = [transform.transform(source)(item) for item in values]
    made = apply_transform(array, source, transform)
    if not isinstance(transform, IdentityTransform | VoidTransform):
        day = isinstance(transform, DayTransform)
        assert made.type == (pa.int32() if day else arrow_type(transform.result_type(source)))
    assert made.to_pylist() == expected


def test_hashes_of_any_length() -> None:
    some = random.Random(1)
    values = [some.randbytes(size) for size in [*range(40), 511, 512, 513, 3000]]
    some.shuffle(values)
    array = pa.array([b"x", *values], pa.binary()).slice(1)
    assert hash_bytes(array).tolist() == [mmh3.hash(value, signed=False) for value in values]
    assert hash_bytes(pa.array([], pa.binary())).tolist() == []
    assert hash_bytes(pa.array([b"", b""])).tolist() == [0, 0]


def test_the_hashes_that_the_spec_gives() -> None:
    assert hash_longs(np.array([34])).view(np.int32).tolist() == [2017239379]
    assert hash_bytes(pa.array(["iceberg"]).cast(pa.binary())).view(np.int32).tolist() == [1210000089]
    assert hash_bytes(pa.array([bytes([0, 1, 2, 3])])).view(np.int32).tolist() == [-188683207]


def test_what_is_no_transform_of_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="no transform of"):
        apply_transform(pa.array([True]), BooleanType(), BucketTransform(4))


def _value(type_: pa.DataType, some: random.Random) -> Any:
    """Values that Python's dates, which judge here, can hold; truncation must not leave the type's range either."""
    drawn = value(type_, some)
    if pa.types.is_timestamp(type_):
        return some.randint(-(1 << 52), 1 << 52) * (1 if type_.unit == "us" else 500)
    if pa.types.is_date(type_):
        return some.randint(-200_000, 200_000)
    if pa.types.is_integer(type_):
        return max(drawn, 10 - (1 << (type_.bit_width - 1)))
    if pa.types.is_decimal(type_):
        return drawn if abs(drawn) < 10 ** (type_.precision - type_.scale) - 1 else drawn / 10
    return drawn
