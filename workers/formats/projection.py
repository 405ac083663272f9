"""Projection of a data file to the table's current schema: columns found by field id at every depth, and cast.

Follows the spec's Column Projection: a column that the file lacks takes its identity partition value, else its
``initial-default``, else null. Dropped columns are left out, promoted ones are cast, renamed and moved ones found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from workers.arrow.canonical import arrow_scalar, promotion
from workers.arrow.fields import Mapped, field_ids, has_field_ids
from workers.arrow.schema import arrow_field, arrow_type, is_stored
from workers.runtime.errors import UnsupportedFile

#: Converts an array of the file to the column of the table.
Convert = Callable[[pa.Array], pa.Array]
#: Returns a number of values of a column that the file lacks.
Fill = Callable[[int], pa.Array]

#: Lists that Arrow writes into its schema in the file, as lists to every other reader.
_OTHER_LISTS: Final = (pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


class Mismatch(ValueError):
    """A file does not fit the table's schema; the text says how."""


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """Where one column of the table, or one field of a struct, comes from."""

    #: Index among the file's columns, or the fields of the file's struct; None where the file lacks it.
    source: int | None
    convert: Convert
    fill: Fill


@dataclass(frozen=True, slots=True)
class Projection:
    """How rows of one file become rows of the table."""

    columns: tuple[ProjectedColumn, ...]

    @classmethod
    def of(
        cls, fields: Sequence[NestedField], file: pa.Schema, mapping: NameMapping | None, constants: Mapping[int, Any]
    ) -> Projection:
        """Return the projection of a file to the table's columns: by the name mapping if it has no field ids.

        ``constants`` are identity partition values by source field id, in Iceberg's internal form.

        Raises:
            Mismatch: a required column is missing, or a column has a type that is no promotion's source.
        """
        mapped = None if has_field_ids(file) else list(mapping or ())
        return cls(_columns(fields, list(file), mapped, constants))

    @property
    def sources(self) -> list[int]:
        """Top-level columns of the file that are read, ascending."""
        return sorted({column.source for column in self.columns if column.source is not None})

    @property
    def added(self) -> int:
        """Bytes that a row takes in columns that the file lacks."""
        return sum(column.fill(1).nbytes for column in self.columns if column.source is None)

    def arrays(self, read: Callable[[int], pa.Array], rows: int) -> list[pa.Array]:
        """Return the table's columns from those that ``read`` returns by index, for a batch of ``rows`` rows."""
        return [
            column.fill(rows) if column.source is None else column.convert(read(column.source))
            for column in self.columns
        ]


def check_ids(path: str, file: pa.Schema, mapping: NameMapping | None) -> None:
    """Refuse a file without field ids if the table has no name mapping: its columns cannot be identified."""
    if mapping is None and not has_field_ids(file):
        raise UnsupportedFile(path, "it has no field ids, and the table has no schema.name-mapping.default")


def _columns(
    fields: Iterable[NestedField], source: Sequence[pa.Field], mapped: Mapped, constants: Mapping[int, Any]
) -> tuple[ProjectedColumn, ...]:
    found: dict[int, tuple[int, Mapped]] = {}  # the first of the fields that share an id
    for index, (field_id, below) in enumerate(field_ids(source, mapped)):
        if field_id is not None:
            found.setdefault(field_id, (index, below))
    columns = []
    for field in fields:
        fill = _fill(field, constants)
        if field.field_id in found:
            index, below = found[field.field_id]
            columns.append(ProjectedColumn(index, _converter(field, source[index], below, constants), fill))
        elif field.required and _missing(field, constants) is None:
            raise Mismatch(f"it lacks the required column {field.name} ({field.field_id})")
        else:
            columns.append(ProjectedColumn(None, lambda array: array, fill))
    return tuple(columns)


def _missing(field: NestedField, constants: Mapping[int, Any]) -> Any:
    """Return the value of a column that a file lacks: its identity partition's, be it null, else its default."""
    return constants.get(field.field_id, field.initial_default)


def _fill(field: NestedField, constants: Mapping[int, Any]) -> Fill:
    type_ = arrow_type(field.field_type)
    value = _missing(field, constants)
    if value is None or not isinstance(field.field_type, PrimitiveType):
        return _nothing(type_)
    scalar = arrow_scalar(value, field.field_type)
    return lambda rows: pa.repeat(scalar, rows)


def _nothing(type_: pa.DataType) -> Fill:
    """Return what makes nulls. Required fields of a null struct have empty values: Arrow writes no nulls there."""
    if not pa.types.is_struct(type_):
        return lambda rows: pa.nulls(rows, type_)
    null = pa.array([None], type_)  # has empty values below
    return lambda rows: null.take(np.zeros(rows, np.int64))


def _converter(field: NestedField, source: pa.Field, mapped: Mapped, constants: Mapping[int, Any]) -> Convert:
    type_: IcebergType = field.field_type
    if isinstance(type_, StructType):
        return _struct(type_, source, mapped, constants)
    if isinstance(type_, ListType):
        return _list(type_, source, mapped)
    if isinstance(type_, MapType):
        return _map(type_, source, mapped)
    assert isinstance(type_, PrimitiveType)
    try:
        return promotion(source.type, type_)
    except TypeError as error:
        raise Mismatch(f"its column {field.name} ({field.field_id}) {error}") from error


def _struct(type_: StructType, source: pa.Field, mapped: Mapped, constants: Mapping[int, Any]) -> Convert:
    if not pa.types.is_struct(source.type):
        raise Mismatch(f"its column {source.name} is of type {source.type}, a struct is expected")
    stored = [field for field in type_.fields if is_stored(field.field_type)]
    target = [arrow_field(field) for field in stored]
    projection = Projection(_columns(stored, list(source.type), mapped, constants))

    def convert(array: pa.Array) -> pa.Array:
        mask = _mask(array)
        arrays = projection.arrays(array.field, len(array))
        values = [_required(field, values, mask) for field, values in zip(stored, arrays, strict=True)]
        return pa.StructArray.from_arrays(values, fields=target, mask=mask)

    return convert


def _list(type_: ListType, source: pa.Field, mapped: Mapped) -> Convert:
    plain = pa.types.is_list(source.type) or pa.types.is_large_list(source.type)
    if not (plain or isinstance(source.type, _OTHER_LISTS)):
        raise Mismatch(f"its column {source.name} is of type {source.type}, a list is expected")
    below = _below(mapped, type_.element_id)
    element = _converter(type_.element_field, source.type.value_field, below, {})
    target = arrow_type(type_)

    def convert(array: pa.Array) -> pa.Array:
        if plain and not (type_.element_required and array.null_count):
            offsets, start, length = _offsets(array)
            values = element(array.values.slice(start, length))
        else:  # the values of null lists are left out, too
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
            offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))).astype(np.int32))
            values = element(array.flatten())
        values = _required(type_.element_field, values)
        return pa.ListArray.from_arrays(offsets, values, type=target, mask=_mask(array))

    return convert


def _map(type_: MapType, source: pa.Field, mapped: Mapped) -> Convert:
    if not pa.types.is_map(source.type):
        raise Mismatch(f"its column {source.name} is of type {source.type}, a map is expected")
    key = _converter(type_.key_field, source.type.key_field, _below(mapped, type_.key_id), {})
    value = _converter(type_.value_field, source.type.item_field, _below(mapped, type_.value_id), {})
    target = arrow_type(type_)

    def convert(array: pa.Array) -> pa.Array:
        offsets, start, length = _offsets(array)
        keys, items = key(array.keys.slice(start, length)), value(array.items.slice(start, length))
        items = _required(type_.value_field, items)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=_mask(array))

    return convert


def _required(field: NestedField, values: pa.Array, outside: pa.Array | None = None) -> pa.Array:
    """Return the values of a field; a required one has empty values, not nulls, where what is around it is null.

    Raises:
        ValueError: a required field has nulls elsewhere.
    """
    if not field.required or not values.null_count:
        return values
    if outside is None or pc.any(pc.and_not(values.is_null(), outside)).as_py():
        raise ValueError(f"has nulls in {field.name} ({field.field_id}), for which the table requires values")
    empty = pa.array([None], pa.struct([pa.field("", values.type, nullable=False)])).field(0)[0]
    return pc.coalesce(values, empty)


def _below(mapped: Mapped, field_id: int) -> Mapped:
    if mapped is None:
        return None
    return next((list(m.fields) for m in mapped if m.field_id == field_id), [])


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return offsets that begin at 0, and the start and the length of the values that they are about."""
    offsets = array.offsets.to_numpy()
    start, end = int(offsets[0]), int(offsets[-1])
    return pa.array((offsets - start).astype("int32")), start, end - start


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
