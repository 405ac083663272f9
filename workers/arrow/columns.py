"""The columns of a Parquet file that is about to be written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FIELD_ID: Final = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class Column:
    """A column without children: one column chunk in each row group."""

    field_id: int
    #: Parquet's name of it, from the top of the schema down, joined by dots.
    path: str
    type: pa.DataType
    #: Child indexes from the top of the schema down; None inside lists and maps, where rows have no single value.
    steps: tuple[int, ...] | None

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """The column's value in every row, null where the column or a struct around it is null."""
        assert self.steps is not None
        top, *rest = self.steps
        return pc.struct_field(table.column(top), rest) if rest else table.column(top)


def columns_of(schema: pa.Schema) -> tuple[Column, ...]:
    """All columns, in the order of their column chunks.

    :raises ValueError: when a column has no field id.
    """
    return tuple(_walk(((field.name, field) for field in schema), ()))


def _walk(fields: Iterable[tuple[str, pa.Field]], above: tuple[int, ...] | None) -> Iterator[Column]:
    for index, (path, field) in enumerate(fields):
        steps = None if above is None else (*above, index)
        type_ = field.type
        if pa.types.is_struct(type_):
            yield from _walk(((f"{path}.{child.name}", child) for child in type_), steps)
        elif pa.types.is_map(type_):
            parts = ((f"{path}.key_value.key", type_.key_field), (f"{path}.key_value.value", type_.item_field))
            yield from _walk(parts, None)
        elif pa.types.is_list(type_):
            yield from _walk(((f"{path}.list.element", type_.value_field),), None)
        else:
            text = (field.metadata or {}).get(_FIELD_ID)
            if text is None:
                raise ValueError(f"column {path} has no field id")
            yield Column(int(text), path, type_, steps)
