"""Iceberg's partition transforms of whole columns, in the Arrow types of a table's rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import PrimitiveType

from workers.arrow.murmur import hash_bytes, hash_longs
from workers.arrow.schema import arrow_type

_SECONDS: Final = {"us": 1_000_000, "ns": 1_000_000_000}


def transformed(array: pa.Array, source: PrimitiveType, transform: Transform[Any, Any]) -> pa.Array:
    """Values of a transform, of its result type; null where the source is null.

    Dates, and what day, month, year and hour make, are 32-bit numbers as the spec has them.

    Raises:
        ValueError: the transform is unknown, or not one of this type.
    """
    if isinstance(transform, IdentityTransform):
        return array
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(array), array.type)
    if not transform.can_transform(source):
        raise ValueError(f"{transform} is no transform of {source}")
    made = None
    if isinstance(transform, TimeTransform):
        made = _time(array, transform)
    elif isinstance(transform, BucketTransform):
        made = _bucket(array, transform.num_buckets)
    elif isinstance(transform, TruncateTransform):
        made = _truncated(array, transform.width)
    return _by_value(array, source, transform) if made is None else made


def _time(array: pa.Array, transform: TimeTransform[Any]) -> pa.Array | None:
    numbers = _numbers(array)
    if pa.types.is_timestamp(array.type):
        if isinstance(transform, HourTransform):
            return _nulled(numbers // (3600 * _SECONDS[array.type.unit]), array, pa.int32())
        numbers = numbers // (86_400 * _SECONDS[array.type.unit])
    days = numbers.astype("datetime64[D]")
    if isinstance(transform, DayTransform):
        return _nulled(numbers, array, pa.int32())
    if isinstance(transform, MonthTransform):
        return _nulled(days.astype("datetime64[M]").astype(np.int64), array, pa.int32())
    if isinstance(transform, YearTransform):
        return _nulled(days.astype("datetime64[Y]").astype(np.int64), array, pa.int32())
    return None


def _bucket(array: pa.Array, buckets: int) -> pa.Array | None:
    if pa.types.is_decimal(array.type):
        return None
    if _is_bytes(array.type):
        hashes = hash_bytes(array.cast(pa.binary()))
    else:
        numbers = _numbers(array).astype(np.int64)
        if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
            numbers = numbers // 1000  # in the same buckets as microseconds
        hashes = hash_longs(numbers)
    return _nulled((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(buckets), array, pa.int32())


def _truncated(array: pa.Array, width: int) -> pa.Array | None:
    if pa.types.is_string(array.type):
        return pc.utf8_slice_codeunits(array, 0, width)
    if pa.types.is_binary(array.type):
        return pc.binary_slice(array, 0, width)
    if pa.types.is_integer(array.type):
        numbers = _numbers(array).astype(np.int64)
        return _nulled((numbers - numbers % width).astype(array.type.to_pandas_dtype()), array, array.type)
    return None


def _by_value(array: pa.Array, source: PrimitiveType, transform: Transform[Any, Any]) -> pa.Array:
    """The transform of each distinct value: for decimals, whose digits no vector instruction counts."""
    function = transform.transform(source)
    result = transform.result_type(source)
    assert isinstance(result, PrimitiveType)
    encoded = array.dictionary_encode()
    values = pa.array([function(value) for value in encoded.dictionary.to_pylist()], arrow_type(result))
    return values.take(encoded.indices)


def _numbers(array: pa.Array) -> np.ndarray[Any, Any]:
    """The values as integers, 0 where they are null."""
    wide = array.view(pa.int32() if pa.types.is_date32(array.type) else pa.int64()) if _is_time(array.type) else array
    return (wide.fill_null(0) if wide.null_count else wide).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _is_time(type_: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(type_))


def _is_bytes(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_))


def _nulled(values: np.ndarray[Any, Any], like: pa.Array, type_: pa.DataType) -> pa.Array:
    mask = pc.is_null(like).to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(values.astype(type_.to_pandas_dtype()), type_, mask=mask)
