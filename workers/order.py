"""Columns in a form whose plain order is Iceberg's, and the keys that a sort order makes of rows.

Arrow and Spark sort booleans, integers, and strings and binaries by their unsigned bytes alike. Everything else is
mapped into these: floats into integers in the total order of their bits (spec, Sorting: -NaN < -Infinity < … < -0.0 <
0.0 < … < NaN), decimals into integers, or into 16 bytes where they are wider, dates and times into their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import PrimitiveType

from workers.fields import leaves
from workers.rewriting import SortColumn
from workers.rowtypes import arrow_type, is_stored
from workers.storage import stored, stored_type, words_of
from workers.transforms import transformed


@dataclass(frozen=True, slots=True)
class Source:
    """A primitive column of the rows, possibly inside structs."""

    field_id: int
    type: PrimitiveType
    #: Child indexes from the top of the rows' schema down; empty where rows lack it, being null everywhere.
    path: tuple[int, ...]

    @classmethod
    def of(cls, field_id: int, schema: Schema, rows: pa.Schema) -> Self:
        """Find a column by id; ValueError where the schema has none, or none with one value a row."""
        type_ = schema.find_type(field_id)
        if not isinstance(type_, PrimitiveType):
            raise ValueError(f"field {field_id} is of type {type_}, not a primitive one")
        leaf = leaves(rows, None).get(field_id)
        if leaf is None and is_stored(type_):
            raise ValueError(f"field {field_id} has no single value in a row")
        return cls(field_id, type_, leaf.path if leaf else ())

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """Its values; null where a struct around it is."""
        if not self.path:
            return pa.nulls(batch.num_rows, pa.bool_())
        top, *below = self.path
        return pc.struct_field(batch.column(top), below) if below else batch.column(top)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """What one field of a sort order makes of rows."""

    source: Source
    column: SortColumn

    @classmethod
    def of(cls, column: SortColumn, schema: Schema, rows: pa.Schema) -> Self:
        """The key of a field of a sort order; ValueError where its column cannot be sorted by."""
        return cls(Source.of(column.field_id, schema, rows), column)

    def of_rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Sortable values, ascending as the spec has it; direction and nulls are up to whoever sorts."""
        array = self.source.column(batch)
        return sortable(transformed(array, self.source.type, self.column.transform) if self.source.path else array)

    @property
    def stored_as(self) -> int | None:
        """The index of the column whose stored form is this key already; None where there is none."""
        plain = isinstance(self.column.transform, IdentityTransform) and len(self.source.path) == 1
        return self.source.path[0] if plain and _is_stored_sortable(self.source.type) else None


def sortable(array: pa.Array) -> pa.Array:
    """Values as booleans, integers, strings or binaries of the same order, nulls as nulls."""
    if pa.types.is_floating(array.type):
        return _bits_in_order(array)
    if pa.types.is_decimal(array.type) and pa.types.is_binary(stored_type(array.type)):
        return _bytes_in_order(array)
    return stored(array)


def _is_stored_sortable(type_: PrimitiveType) -> bool:
    if not is_stored(type_):
        return False
    arrow = arrow_type(type_)
    wide = pa.types.is_decimal(arrow) and pa.types.is_binary(stored_type(arrow))
    return not (pa.types.is_floating(arrow) or wide)


def _bits_in_order(array: pa.Array) -> pa.Array:
    """Integers in the order of floats: the bits, and for negative numbers the complement of all but the sign."""
    bits = stored(array)
    width = bits.type.bit_width
    values = (bits.fill_null(0) if bits.null_count else bits).to_numpy(zero_copy_only=False)
    low = values.dtype.type((1 << (width - 1)) - 1)
    ordered = values ^ ((values >> values.dtype.type(width - 1)) & low)
    return pa.array(ordered, mask=_mask(array))


def _bytes_in_order(array: pa.Array) -> pa.Array:
    """16 bytes in the order of wide decimals: big-endian, the sign bit flipped."""
    if not len(array):
        return pa.array([], pa.binary())
    words = words_of(array)
    high = words[:, 1] ^ np.int64(-(1 << 63))
    raw = np.column_stack((high, words[:, 0])).astype(">i8")
    valid = None if (mask := _mask(array)) is None else pa.array(~mask).buffers()[1]
    fixed = pa.Array.from_buffers(pa.binary(16), len(array), [valid, pa.py_buffer(raw)], array.null_count)
    return fixed.cast(pa.binary())


def _mask(array: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
    return pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
