"""The keys that a sort order makes of rows, in a form whose plain order is Iceberg's, and the order of rows by keys.

Arrow sorts booleans, integers, and strings and binaries by their unsigned bytes. Everything else is mapped into
these: floats into integers in the total order of their bits (spec, Sorting: -NaN < -Infinity < … < -0.0 < 0.0 < … <
NaN), decimals into integers, or into 16 bytes where they are wider, dates and times into their numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from workers.arrow.fields import Accessor, bits, null_mask, to_numpy
from workers.arrow.partition_router import PartitionRouter
from workers.arrow.schema import is_stored
from workers.arrow.transforms import apply_transform
from workers.model.units import RewriteUnit

Numbers = npt.NDArray[np.int64]

#: Decimals of more digits do not fit into 64 bits.
_LONG_DIGITS: Final = 18
_PLAIN: Final = (pa.bool_(), pa.int32(), pa.int64(), pa.string(), pa.binary())
#: The numbers that :func:`sort_indices` makes of rows stay below it.
_MAX_NUMBER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Direction:
    """How one key column is sorted."""

    descending: bool = False
    nulls_first: bool = True


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

    router: PartitionRouter
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

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of the order, or those to interleave, in sortable form."""
        return [*(key.of_rows(batch) for key in self.order), *(sortable(axis.column(batch)) for axis in self.axes)]


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


def comparable(array: pa.Array) -> pa.Array:
    """Return a sortable array as integers or as binaries."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.cast(pa.int32()) if pa.types.is_boolean(array.type) else array


def sort_indices(columns: Sequence[pa.Array | pa.ChunkedArray], directions: Sequence[Direction]) -> Numbers:
    """Return the indexes of rows in the order of several columns.

    Each column becomes small numbers, and all of a row's become one number, so that rows are sorted once. Columns are
    sortable and of one length. Rows that compare equal in all of them come in any order.
    """
    state: Numbers = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column, direction in zip(columns, directions, strict=True):
        chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        codes, top = _codes(chunked, _MAX_NUMBER // size - 3)
        if size * (top + 3) > _MAX_NUMBER:
            state, size = _dense(state)
        state = append_codes(state, codes, top, direction, column)
        size *= top + 3
    return np.argsort(state).astype(np.int64, copy=False)


def append_codes(
    state: Numbers, codes: Numbers, top: int, direction: Direction, column: pa.Array | pa.ChunkedArray
) -> Numbers:
    """Return a number for each row that orders rows by ``state`` first and then by one more column.

    ``codes`` are numbers from 0 to ``top`` that compare as the values of the column do, any for nulls. They are changed
    in place.
    """
    if direction.descending:
        codes = top - codes
    codes += 1
    nulls = null_mask(column)
    if nulls is not None:
        codes[nulls] = 0 if direction.nulls_first else top + 2
    return state * (top + 3) + codes


def _codes(column: pa.ChunkedArray, limit: int) -> tuple[Numbers, int]:
    """Return numbers from 0 that compare as values do, and the greatest: at most ``limit`` if that can be."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), 0
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _codes_of_bytes(column)
    values: Numbers = to_numpy(column.cast(pa.int64()))
    low, high = (bound.as_py() for bound in pc.min_max(column.cast(pa.int64())).values())
    if high - low <= limit:
        return values - low, high - low
    codes, size = _dense(values)
    return codes, size - 1


def _codes_of_bytes(column: pa.ChunkedArray) -> tuple[Numbers, int]:
    # 64-bit offsets, for there may be more than 2 GB of them.
    encoded = column.cast(pa.large_binary()).dictionary_encode().unify_dictionaries()
    values = encoded.chunk(0).dictionary
    indexes = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    return rank_values(values)[to_numpy(indexes)], len(values) - 1


def rank_values(values: pa.Array) -> Numbers:
    """Return the rank of each of some distinct values."""
    ranks = np.empty(len(values), np.int64)
    ranks[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    return ranks


def _dense(values: Numbers) -> tuple[Numbers, int]:
    """Return the rank of each value, equal ones alike, and the number of ranks."""
    found, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(found)


def _bits_in_order(array: pa.Array) -> pa.Array:
    """Return integers in the order of floats: the bits, and for negative ones the complement of all but the sign."""
    plain = bits(array)
    width = plain.type.bit_width
    values = to_numpy(plain)
    low = values.dtype.type((1 << (width - 1)) - 1)
    ordered = values ^ ((values >> values.dtype.type(width - 1)) & low)
    return pa.array(ordered, mask=null_mask(array))


def _longs(array: pa.Array) -> pa.Array:
    """Return decimals that fit into 64 bits as integers."""
    return pa.array(_words(array)[:, 0], mask=null_mask(array)) if len(array) else pa.array([], pa.int64())


def _bytes_in_order(array: pa.Array) -> pa.Array:
    """Return 16 bytes in the order of wide decimals: big-endian, the sign bit flipped."""
    if not len(array):
        return pa.array([], pa.binary())
    words = _words(array)
    high = words[:, 1] ^ np.int64(-(1 << 63))
    raw = np.column_stack((high, words[:, 0])).astype(">i8")
    valid = None if (mask := null_mask(array)) is None else pa.array(~mask).buffers()[1]
    fixed = pa.Array.from_buffers(pa.binary(16), len(array), [valid, pa.py_buffer(raw)], array.null_count)
    return fixed.cast(pa.binary())


def _words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Return the two 64-bit words of each 128-bit decimal, the lower first; anything where it is null."""
    start = 2 * array.offset
    return np.frombuffer(array.buffers()[1], np.int64)[start : start + 2 * len(array)].reshape(-1, 2)
