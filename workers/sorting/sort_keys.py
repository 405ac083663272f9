"""Columns in a form whose plain order is Iceberg's, and the keys that a sort order makes of rows.

Arrow sorts booleans, integers, and strings and binaries by their unsigned bytes. Everything else is
mapped into these: floats into integers in the total order of their bits (spec, Sorting: -NaN < -Infinity < … < -0.0 <
0.0 < … < NaN), decimals into integers, or into 16 bytes where they are wider, dates and times into their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.transforms import IdentityTransform, Transform, parse_transform
from pyiceberg.types import PrimitiveType

from producer.model.plan import SortKey, Strategy
from workers.arrow.fields import Accessor, bits
from workers.arrow.partition_router import PartitionRouter
from workers.arrow.schema import is_stored
from workers.arrow.transforms import apply_transform
from workers.model.delete_set import ContentFile
from workers.model.units import RewriteUnit
from workers.sorting.ranks import Direction

#: Decimals of more digits do not fit into 64 bits.
_LONG_DIGITS: Final = 18
_PLAIN: Final = (pa.bool_(), pa.int32(), pa.int64(), pa.string(), pa.binary())


@dataclass(frozen=True, slots=True)
class SortFieldKey:
    """The key that one field of a sort order makes of rows."""

    source: Accessor
    key: SortKey
    transform: Transform[Any, Any]

    @classmethod
    def of(cls, key: SortKey, schema: Schema, rows: pa.Schema) -> Self:
        """Return the key of a sort field; raises ValueError if rows cannot be sorted by its column."""
        return cls(Accessor.of(key.field_id, schema, rows), key, parse_transform(key.transform))

    def of_rows(self, batch: pa.RecordBatch) -> pa.Array:
        """Return sortable values in the spec's ascending order; direction and nulls are applied by the sort."""
        array = self.source.column(batch)
        return sortable(apply_transform(array, self.source.type, self.transform) if self.source.path else array)

    @property
    def is_identity(self) -> bool:
        """Whether the key is the column itself, which costs next to nothing to read again."""
        return isinstance(self.transform, IdentityTransform)


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The keys of a unit's rows, for rows of one Arrow schema."""

    partitioning: PartitionRouter
    order: tuple[SortFieldKey, ...]
    #: Columns that are interleaved; there are no others in the order then.
    axes: tuple[Accessor, ...]

    @classmethod
    def of(cls, unit: RewriteUnit, rows: pa.Schema) -> Self:
        """Return the keys of rows with the columns of :func:`key_fields`; raises ValueError if one is not a key."""
        order = unit.order if unit.strategy is Strategy.SORT else ()
        axes = unit.zorder if unit.strategy is Strategy.ZORDER else ()
        return cls(
            PartitionRouter.of(unit, rows),
            tuple(SortFieldKey.of(column, unit.schema, rows) for column in order),
            tuple(Accessor.of(field_id, unit.schema, rows) for field_id in axes),
        )

    @property
    def directions(self) -> list[Direction]:
        """How each column of the order is sorted."""
        return [Direction(key.key.descending, key.key.nulls_first) for key in self.order]

    def parts(self, file: ContentFile, batch: pa.RecordBatch) -> pa.Array:
        """Return the partition of each row, as text."""
        return self.partitioning.texts(file, batch)

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the order, or those to interleave, in sortable form."""
        return [
            *(key.of_rows(batch) for key in self.order),
            *(sortable(axis.column(batch)) for axis in self.axes),
        ]


def key_fields(unit: RewriteUnit) -> Schema:
    """Return the columns that keys are made from; at least one, since without columns no rows are read."""
    ids: set[int] = set()
    if unit.strategy is Strategy.SORT:
        ids |= {column.field_id for column in unit.order}
    if unit.strategy is Strategy.ZORDER:
        ids |= set(unit.zorder)
    if None in unit.scopes:
        ids |= {field.source_id for field in unit.spec.fields}
    known = {field_id for field_id in ids & unit.schema.field_ids if is_stored(unit.schema.find_type(field_id))}
    if not known:
        stored = [field for field in unit.schema.fields if is_stored(field.field_type)]
        plain = [field for field in stored if isinstance(field.field_type, PrimitiveType)]
        return Schema(*(plain[:1] or stored))
    return prune_columns(unit.schema, known, select_full_types=False)


def sortable(array: pa.Array) -> pa.Array:
    """Return values as booleans, integers, strings or binaries of the same order, nulls as nulls.

    Raises:
        TypeError: values of this type have no order.
    """
    type_ = array.type
    if pa.types.is_floating(type_):
        return _bits_in_order(array)
    if pa.types.is_decimal128(type_):
        return _longs(array) if type_.precision <= _LONG_DIGITS else _bytes_in_order(array)
    if pa.types.is_temporal(type_):
        return bits(array)
    if pa.types.is_fixed_size_binary(type_):
        return array.cast(pa.binary())
    if pa.types.is_null(type_):
        return pa.nulls(len(array), pa.bool_())
    if type_ not in _PLAIN:
        raise TypeError(f"values of type {type_} have no order")
    return array


def _bits_in_order(array: pa.Array) -> pa.Array:
    """Integers in the order of floats: the bits, and for negative numbers the complement of all but the sign."""
    plain = bits(array)
    width = plain.type.bit_width
    values = (plain.fill_null(0) if plain.null_count else plain).to_numpy(zero_copy_only=False)
    low = values.dtype.type((1 << (width - 1)) - 1)
    ordered = values ^ ((values >> values.dtype.type(width - 1)) & low)
    return pa.array(ordered, mask=_mask(array))


def _longs(array: pa.Array) -> pa.Array:
    """Decimals that fit into 64 bits as integers."""
    return pa.array(_words(array)[:, 0], mask=_mask(array)) if len(array) else pa.array([], pa.int64())


def _bytes_in_order(array: pa.Array) -> pa.Array:
    """16 bytes in the order of wide decimals: big-endian, the sign bit flipped."""
    if not len(array):
        return pa.array([], pa.binary())
    words = _words(array)
    high = words[:, 1] ^ np.int64(-(1 << 63))
    raw = np.column_stack((high, words[:, 0])).astype(">i8")
    valid = None if (mask := _mask(array)) is None else pa.array(~mask).buffers()[1]
    fixed = pa.Array.from_buffers(pa.binary(16), len(array), [valid, pa.py_buffer(raw)], array.null_count)
    return fixed.cast(pa.binary())


def _words(array: pa.Array) -> npt.NDArray[np.int64]:
    """The two 64-bit words of each 128-bit decimal, the lower first; anything where it is null."""
    start = 2 * array.offset
    return np.frombuffer(array.buffers()[1], np.int64)[start : start + 2 * len(array)].reshape(-1, 2)


def _mask(array: pa.Array) -> npt.NDArray[np.bool_] | None:
    return pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None
