"""Rows on their way through Spark: every Arrow type of a table's rows as one that Spark carries bit by bit.

Spark's own types would lose what it has no word for (nanoseconds, times, fixed lengths, repeated map keys) or may touch
(the bits of a NaN), and its names are case-insensitive. So nothing but booleans, integers, strings, binaries, arrays
and structs goes through it, under names by position. Most of it is views of the same memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Decimals of more digits do not fit into 64 bits.
LONG_DIGITS: Final = 18
_PREFIX: Final = "c"
_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.binary(): "binary",
}


@dataclass(frozen=True, slots=True)
class StorageSchema:
    """How rows of one schema are stored: column for column, in order, named ``c0``, ``c1``, …"""

    #: Of the rows, with all that their fields say.
    rows: pa.Schema
    #: Of the same rows as Spark has them.
    stored_rows: pa.Schema

    @classmethod
    def of(cls, schema: pa.Schema) -> Self:
        """The storage of rows of a schema.

        Raises:
            TypeError: a type is none that a table's rows have.
        """
        stored = [pa.field(f"{_PREFIX}{index}", stored_type(field.type)) for index, field in enumerate(schema)]
        return cls(schema, pa.schema(stored))

    @property
    def names(self) -> list[str]:
        """Of the stored columns."""
        return list(self.stored_rows.names)

    @property
    def spark_ddl(self) -> str:
        """The stored columns as Spark's DDL declares them; empty where there are none."""
        return spark_ddl(self.stored_rows)

    def stored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as Spark takes them.

        Raises:
            ValueError: a decimal has more digits than its type allows.
        """
        return pa.RecordBatch.from_arrays([stored(column) for column in batch.columns], schema=self.stored_rows)

    def restored(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as they were: what :meth:`stored` was given, for what it gave."""
        columns = [restored(column, field.type) for column, field in zip(batch.columns, self.rows, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self.rows)


def spark_ddl(schema: pa.Schema) -> str:
    """Columns of stored types as Spark's DDL declares them."""
    return ", ".join(f"{field.name} {_spark_name(field.type)}" for field in schema)


def stored_type(type_: pa.DataType) -> pa.DataType:
    """What a type is stored as; TypeError where it is none of a table's rows."""
    if pa.types.is_map(type_):
        entry = _struct_type([stored_type(type_.key_type), stored_type(type_.item_type)])
        return pa.list_(pa.field("element", entry))
    if pa.types.is_list(type_):
        return pa.list_(pa.field("element", stored_type(type_.value_type)))
    if pa.types.is_struct(type_):
        # Spark has no use for a struct without fields; whether it is null is all there is to keep.
        return _struct_type([stored_type(field.type) for field in type_]) if type_.num_fields else pa.bool_()
    if type_ in _NAMES:
        return type_
    if pa.types.is_null(type_):
        return pa.bool_()
    if pa.types.is_float32(type_) or pa.types.is_date32(type_):
        return pa.int32()
    if pa.types.is_float64(type_) or pa.types.is_time64(type_) or pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_decimal128(type_):
        return pa.int64() if type_.precision <= LONG_DIGITS else pa.binary()
    if pa.types.is_fixed_size_binary(type_):
        return pa.binary()
    raise TypeError(f"rows have no type {type_}")


def stored(array: pa.Array) -> pa.Array:
    """One column as Spark takes it; ValueError for a decimal beyond its precision."""
    type_ = array.type
    to = stored_type(type_)
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        values = array.values if pa.types.is_list(type_) else _entries(array)
        return _list(array, stored(_within(array, values)), to)
    if pa.types.is_struct(type_):
        if not type_.num_fields:
            return _masked_bool(array)
        children = [stored(array.field(index)) for index in range(type_.num_fields)]
        return pa.StructArray.from_arrays(children, fields=list(to), mask=_nulls(array))
    if pa.types.is_null(type_):
        return pa.nulls(len(array), to)
    if pa.types.is_decimal(type_):
        return _long(array) if pa.types.is_int64(to) else array.view(pa.binary(16)).cast(to)
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(to)
    return array if type_ == to else array.view(to)


def restored(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """A stored column as it was: of exactly the given type, names and metadata of inner fields included."""
    if pa.types.is_map(type_):
        entries = _within(array, array.values)
        keys, items = (restored(entries.field(index), to) for index, to in ((0, type_.key_type), (1, type_.item_type)))
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=type_, mask=_nulls(array))
    if pa.types.is_list(type_):
        return _list(array, restored(_within(array, array.values), type_.value_type), type_)
    if pa.types.is_struct(type_):
        if not type_.num_fields:
            return pa.Array.from_buffers(type_, len(array), [_validity(array)], array.null_count)
        children = [restored(array.field(index), field.type) for index, field in enumerate(type_)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=_nulls(array))
    if pa.types.is_null(type_):
        return pa.nulls(len(array))
    if pa.types.is_decimal(type_):
        return _decimal(array, type_) if pa.types.is_int64(array.type) else array.cast(pa.binary(16)).view(type_)
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(type_)
    return array if array.type == type_ else array.view(type_)


def words_of(array: pa.Array) -> np.ndarray[Any, Any]:
    """The two 64-bit words of each 128-bit decimal, the lower first; anything where it is null."""
    start = 2 * array.offset
    words: np.ndarray[Any, Any] = np.frombuffer(array.buffers()[1], np.int64)
    return words[start : start + 2 * len(array)].reshape(-1, 2)


def _long(array: pa.Array) -> pa.Array:
    if not len(array):
        return pa.array([], pa.int64())
    words = words_of(array)
    mask = _nulls(array)
    excess = words[:, 1] != words[:, 0] >> 63
    if mask is not None:
        excess &= ~mask.to_numpy(zero_copy_only=False)
    if excess.any():
        raise ValueError(f"a value has more digits than {array.type}")
    return pa.array(words[:, 0], mask=None if mask is None else mask.to_numpy(zero_copy_only=False))


def _decimal(array: pa.Array, type_: pa.DataType) -> pa.Array:
    low = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    words = np.column_stack((low, low >> 63))
    return pa.Array.from_buffers(type_, len(array), [_validity(array), pa.py_buffer(words)], array.null_count)


def _struct_type(types: Sequence[pa.DataType]) -> pa.DataType:
    return pa.struct([pa.field(f"f{index}", type_) for index, type_ in enumerate(types)])


def _spark_name(type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        return f"array<{_spark_name(type_.value_type)}>"
    if pa.types.is_struct(type_):
        return f"struct<{', '.join(f'{field.name}: {_spark_name(field.type)}' for field in type_)}>"
    return _NAMES[type_]


def _entries(array: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([array.keys, array.items], names=["f0", "f1"])


def _list(array: pa.Array, values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets(array), values, type=type_, mask=_nulls(array))


def _offsets(array: pa.Array) -> pa.Array:
    """Where each list begins and the last ends, counted from the first value that a slice has."""
    offsets = array.offsets
    first = offsets[0]
    return pc.subtract(offsets, first) if first.as_py() or offsets.offset else offsets


def _within(array: pa.Array, values: pa.Array) -> pa.Array:
    """The values that a list array's slice has."""
    first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return values.slice(first, last - first)


def _nulls(array: pa.Array) -> pa.Array | None:
    return pc.is_null(array) if array.null_count else None


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    return pa.array(pc.is_valid(array).to_numpy(zero_copy_only=False)).buffers()[1]


def _masked_bool(array: pa.Array) -> pa.Array:
    valid = pc.is_valid(array)
    return pc.if_else(valid, pa.scalar(True), pa.scalar(None, pa.bool_()))
