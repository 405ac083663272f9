"""The canonical Arrow form of a key column, whatever type a file stores it in, and the promotion of other columns.

Two keys are equal in Iceberg if and only if their canonical values are bytewise equal or both null. Floats are held as
their bits, every NaN as one, so NaN equals NaN and -0.0 differs from 0.0. Times are microseconds (nanoseconds for
``timestamp_ns``) in UTC. Promoted types (spec, "Schema Evolution") are widened to the table's current type.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, TypeAlias, cast
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_json
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
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from workers.arrow.fields import null_mask, to_numpy
from workers.arrow.schema import arrow_type

_ORDERED = (IntegerType, LongType, DateType, TimeType, TimestampType, TimestamptzType, TimestampNanoType,
            TimestamptzNanoType, StringType, BinaryType)  # fmt: skip
_NANOSECONDS = (TimestampNanoType, TimestamptzNanoType)
_TEXTS = (pa.string(), pa.large_string(), pa.string_view())
_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())
_DAY_MICROSECONDS = 86_400_000_000


def canonical_type(type_: IcebergType) -> pa.DataType:
    """Return the canonical Arrow type of a key column.

    Raises:
        TypeError: a column of this type cannot be a key.
    """
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if type(type_) not in _CANONICAL:
        raise TypeError(f"a column of type {type_} cannot be an equality delete key")
    return _CANONICAL[type(type_)][0]


def is_ordered(type_: IcebergType) -> bool:
    """Return whether bounds of canonical values may be compared with the statistics of a file."""
    return isinstance(type_, _ORDERED)


def canonical_array(array: pa.Array, type_: IcebergType) -> pa.Array:
    """Return a file's values in canonical form.

    Raises:
        ValueError: the file's type is neither the table's nor one that promotes to it. Arrow's errors are such too.
    """
    target = canonical_type(type_)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type) or isinstance(type_, UnknownType):
        return pa.nulls(len(array), target)
    converter = _DECIMAL if isinstance(type_, DecimalType) else _CANONICAL[type(type_)][1]
    converted = converter(array, type_, target)
    if converted is None:
        raise ValueError(f"holds {array.type} where the table has {type_}")
    return converted


def canonical_value(value: Any, type_: IcebergType) -> pa.Scalar:
    """Return one value in canonical form: an internal one (days, microseconds, bytes), a Python one, or JSON text."""
    target = canonical_type(type_)
    if value is None:
        return pa.scalar(None, target)
    if isinstance(value, str) and isinstance(type_, _NANOSECONDS):
        value = np.datetime64(value.removesuffix("Z").removesuffix("+00:00"), "ns").astype(np.int64).item()
    elif isinstance(value, str) and not isinstance(type_, StringType):
        value = from_json(cast(PrimitiveType, type_), value)
    if isinstance(value, datetime.datetime):
        value = datetime_to_micros(value) * (1000 if isinstance(type_, _NANOSECONDS) else 1)
    elif isinstance(value, datetime.date):
        value = date_to_days(value)
    elif isinstance(value, datetime.time):
        value = time_to_micros(value)
    elif isinstance(value, UUID):
        value = value.bytes
    if isinstance(type_, FloatType | DoubleType):
        return canonical_array(pa.array([value], pa.float64()).cast(arrow_type(type_), safe=False), type_)[0]
    if isinstance(type_, DecimalType):
        scale = Decimal(1).scaleb(-type_.scale)
        return pa.scalar(Decimal(value).quantize(scale, context=Context(prec=type_.precision)), target)
    return pa.scalar(value, target)


def promotion(source: pa.DataType, type_: PrimitiveType) -> Callable[[pa.Array], pa.Array]:
    """Return what casts arrays of a file's type to the column's Arrow type; no value changes on the way.

    What it returns raises ValueError where the file's type is neither the column's nor one that may have been promoted
    to it (spec, Schema Evolution).
    """
    target = arrow_type(type_)
    if source == target:
        return lambda array: array
    if isinstance(type_, FloatType | DoubleType):
        return lambda array: _widen_float(array, target)  # the canonical form does not keep the kind of a NaN
    return lambda array: canonical_array(array, type_).cast(target)


def arrow_scalar(value: Any, type_: PrimitiveType) -> pa.Scalar:
    """Return a default or a value of a partition tuple, in any form of PyIceberg's, as a scalar of the column."""
    target = arrow_type(type_)
    if isinstance(type_, FloatType | DoubleType):
        return pa.scalar(float(value), target)
    return canonical_value(value, type_).cast(target)


def _widen_float(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_floating(array.type) or array.type.bit_width > target.bit_width:
        raise ValueError(f"holds {array.type} where the table has {target}")
    return array.cast(target)


def _date(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array | None:
    if pa.types.is_date64(array.type):
        array = array.cast(pa.date32())
    return array.cast(target) if pa.types.is_date32(array.type) or pa.types.is_int32(array.type) else None


def _time(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array | None:
    if pa.types.is_time(array.type):
        return array.cast(pa.time64("us"), safe=False).cast(target)
    return array if pa.types.is_int64(array.type) else None


def _timestamp(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array | None:
    unit = "ns" if isinstance(type_, _NANOSECONDS) else "us"
    if pa.types.is_date32(array.type):  # v3 promotes date to timestamp
        days = array.cast(pa.int32()).cast(target)
        return pc.multiply_checked(days, pa.scalar(_DAY_MICROSECONDS * (1000 if unit == "ns" else 1), target))
    if not pa.types.is_timestamp(array.type):
        return array if pa.types.is_int64(array.type) else None
    if array.type.unit == "ns" and unit == "us":
        # Arrow's cast rounds towards zero; instants before 1970 must be floored, as they are everywhere else.
        return pa.array(to_numpy(array.cast(target)) // 1000, mask=null_mask(array))
    return array.cast(pa.timestamp(unit, array.type.tz)).cast(target)


def _floating(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array | None:
    values = to_numpy(_widen_float(array, arrow_type(type_)))
    bits = values.view(target.to_pandas_dtype())
    nan = np.isnan(values)
    if nan.any():
        bits = np.where(nan, np.array(np.nan, values.dtype).view(bits.dtype), bits)
    return pa.array(bits, mask=null_mask(array))


def _text(array: pa.Array, type_: IcebergType, target: pa.DataType) -> pa.Array | None:
    if array.type not in _TEXTS and not _is_bytes(array.type):
        return None
    # Keys are compared as bytes, so bytes that are not UTF-8 do no harm here.
    return pc.cast(array, options=pc.CastOptions(target_type=target, allow_invalid_utf8=True))


def _is_bytes(type_: pa.DataType) -> bool:
    return type_ in _BINARIES or bool(pa.types.is_fixed_size_binary(type_))


_Converter: TypeAlias = Callable[[pa.Array, IcebergType, pa.DataType], pa.Array | None]


def _cast(accepts: Callable[[pa.DataType], bool]) -> _Converter:
    """Return what casts arrays of the types that are accepted."""
    return lambda array, type_, target: array.cast(target) if accepts(array.type) else None


_DECIMAL = _cast(pa.types.is_decimal)
#: The canonical type of each type but decimals, and what converts a file's values to it; None for a type that is
#: neither the table's nor one that promotes to it.
_CANONICAL: dict[type[IcebergType], tuple[pa.DataType, _Converter]] = {
    BooleanType: (pa.bool_(), _cast(pa.types.is_boolean)),
    IntegerType: (pa.int32(), _cast(pa.types.is_integer)),
    LongType: (pa.int64(), _cast(pa.types.is_integer)),
    DateType: (pa.int32(), _date),
    TimeType: (pa.int64(), _time),
    TimestampType: (pa.int64(), _timestamp),
    TimestamptzType: (pa.int64(), _timestamp),
    TimestampNanoType: (pa.int64(), _timestamp),
    TimestamptzNanoType: (pa.int64(), _timestamp),
    FloatType: (pa.int32(), _floating),
    DoubleType: (pa.int64(), _floating),
    StringType: (pa.string(), _text),
    UUIDType: (pa.binary(), _cast(_is_bytes)),
    FixedType: (pa.binary(), _cast(_is_bytes)),
    BinaryType: (pa.binary(), _cast(_is_bytes)),
    UnknownType: (pa.bool_(), _cast(pa.types.is_boolean)),
}
