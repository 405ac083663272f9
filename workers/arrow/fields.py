"""Columns of a file by Iceberg field id, and their values as NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import PrimitiveType

from workers.arrow.schema import FIELD_ID, column_at, is_stored

#: The name mapping of some fields; None where the fields' own ids count.
Mapped: TypeAlias = Sequence[MappedField] | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column without children, or a struct."""

    #: Child indexes from the top of the schema down; empty inside lists and maps, where rows have no single value.
    path: tuple[int, ...]
    #: The names from the top of the schema down, joined by dots, as Parquet has them; other columns may share it.
    name: str
    #: The number of the column, or of the struct's first one, among the file's column chunks.
    column: int
    type: pa.DataType


def has_field_ids(fields: Iterable[pa.Field]) -> bool:
    """Return whether any field, at any depth, carries a field id."""
    return any(_field_id(field) is not None or has_field_ids(_children(field.type)) for field in fields)


def leaves(schema: pa.Schema, mapping: NameMapping | None, *, structs: bool = False) -> dict[int, Leaf]:
    """Return leaves outside of lists and maps by field id: by the name mapping if there is one, else the schema's ids.

    With ``structs``, return all structs instead, as leaves that are read with everything in them.
    """
    found: dict[int, Leaf] = {}
    for field_id, leaf in _walk(list(schema), list(mapping) if mapping is not None else None, (), "", 0):
        if field_id is not None and leaf.path:
            found.setdefault(field_id, leaf)  # the first of those that share an id
    return {field_id: leaf for field_id, leaf in found.items() if pa.types.is_struct(leaf.type) == structs}


def stored_columns(schema: pa.Schema) -> dict[int, Leaf]:
    """Return the columns of a file of this schema by field id, in the order in which the file has them.

    Raises:
        ValueError: a column has no field id.
    """
    found: dict[int, Leaf] = {}
    for field_id, leaf in _walk(list(schema), None, (), "", 0):
        if field_id is None:
            raise ValueError(f"column {leaf.name} has no field id")
        if not pa.types.is_struct(leaf.type):
            found[field_id] = leaf
    return found


def _walk(
    fields: Sequence[pa.Field], mapped: Mapped, path: tuple[int, ...] | None, prefix: str, column: int
) -> Iterator[tuple[int | None, Leaf]]:
    for index, (field, (field_id, below)) in enumerate(zip(fields, field_ids(fields, mapped), strict=True)):
        here, name = None if path is None else (*path, index), prefix + field.name
        children, is_struct = _children(field.type), pa.types.is_struct(field.type)
        yield from _walk(children, below, here if is_struct else None, f"{name}.", column)
        if is_struct or not children:
            yield field_id, Leaf(here or (), name, column, field.type)
        column += _width(field.type)


def field_ids(fields: Iterable[pa.Field], mapped: Mapped) -> Iterator[tuple[int | None, Mapped]]:
    """Yield the id of each field, None where it has none, and the name mapping of the fields below it."""
    for field in fields:
        if mapped is None:
            yield _field_id(field), None
            continue
        known = next((m for m in mapped if field.name in m.names), None)
        # A mapped field is false when it has no children: ask for None.
        yield (None, []) if known is None else (known.field_id, list(known.fields))


def _field_id(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(FIELD_ID)
    # Arrow writes a negative id where Parquet has none.
    return int(text) if text is not None and int(text) >= 0 else None


def _children(type_: pa.DataType) -> list[pa.Field]:
    """Return the fields below, named as in the paths of Parquet's columns."""
    if isinstance(type_, pa.BaseExtensionType):
        return _children(type_.storage_type)
    if pa.types.is_struct(type_):
        return list(type_)
    if pa.types.is_map(type_):
        return [type_.key_field.with_name("key_value.key"), type_.item_field.with_name("key_value.value")]
    # Lists of all kinds, views too.
    return [type_.value_field.with_name("list.element")] if hasattr(type_, "value_field") else []


def _width(type_: pa.DataType) -> int:
    """Return the number of column chunks that hold a field."""
    return sum(_width(child.type) for child in _children(type_)) or 1


@dataclass(frozen=True, slots=True)
class Accessor:
    """Reads a primitive column, possibly inside structs, from batches of one schema."""

    field_id: int
    type: PrimitiveType
    #: Child indexes from the top of the rows' schema down; empty where rows lack it, being null everywhere.
    path: tuple[int, ...]

    @classmethod
    def of(cls, field_id: int, schema: Schema, rows: pa.Schema) -> Self:
        """Find a column by id.

        Raises:
            ValueError: the schema has no such column, or it has no single value in a row.
        """
        type_ = schema.find_type(field_id)
        if not isinstance(type_, PrimitiveType):
            raise ValueError(f"field {field_id} is of type {type_}, not a primitive one")
        leaf = leaves(rows, None).get(field_id)
        if leaf is None and is_stored(type_):
            raise ValueError(f"field {field_id} has no single value in a row")
        return cls(field_id, type_, leaf.path if leaf else ())

    def column(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the column; null where a struct around it is null."""
        if not self.path:
            return pa.nulls(batch.num_rows, pa.bool_())
        return column_at(batch, self.path)


def bits(array: pa.Array) -> pa.Array:
    """Return floats, dates and times as integers of the same bits."""
    return array.view(pa.int32() if array.type.bit_width == 32 else pa.int64())


def null_mask(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.bool_] | None:
    """Return whether each value is null; None if none is."""
    return pc.is_null(array).to_numpy(zero_copy_only=False) if array.null_count else None


def to_numpy(array: pa.Array | pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return values without nulls, or numbers with 0 where they are null."""
    return (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def field_index(read: pa.Schema | pa.StructType, wanted: pa.Field) -> int:
    """Return the index of a file's field among those that were read; names may repeat, field ids do not."""
    indexes: list[int] = read.get_all_field_indices(wanted.name)
    return next((index for index in indexes if read.field(index).metadata == wanted.metadata), indexes[0])
