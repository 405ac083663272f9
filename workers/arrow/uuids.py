"""UUIDs on their way into Parquet, with the logical type that Iceberg asks for (spec, Appendix A).

Arrow writes it for arrays of its own UUID type, and none for bytes of fixed length.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import UUIDType


def annotated_schema(schema: pa.Schema, iceberg: Schema) -> pa.Schema:
    """The schema with the UUID type wherever Iceberg's schema has it, at every depth; field ids stay."""

    def is_uuid(field: pa.Field) -> bool:
        return isinstance(iceberg.find_type(int(field.metadata[b"PARQUET:field_id"])), UUIDType)

    return pa.schema([_field(field, is_uuid) for field in schema])


def annotated(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows in that schema; no values are copied.

    :raises ValueError: when the table has other columns.
    """
    if table.column_names != schema.names:
        raise ValueError(f"the columns are {table.column_names}, not {schema.names}")
    columns = [
        column if column.type == type_ else pa.chunked_array([_array(chunk, type_) for chunk in column.chunks], type_)
        for column, type_ in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _field(field: pa.Field, is_uuid: Callable[[pa.Field], bool]) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        return field.with_type(pa.struct([_field(child, is_uuid) for child in type_]))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_field(type_.value_field, is_uuid)))
    if pa.types.is_map(type_):
        return field.with_type(pa.map_(_field(type_.key_field, is_uuid), _field(type_.item_field, is_uuid)))
    return field.with_type(pa.uuid()) if is_uuid(field) else field


def _array(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_struct(type_) and pa.types.is_struct(array.type):
        children = [_array(array.field(index), child.type) for index, child in enumerate(type_)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if (pa.types.is_list(type_) and pa.types.is_list(array.type)) or (
        pa.types.is_map(type_) and pa.types.is_map(array.type)
    ):
        below = type_.value_type if pa.types.is_list(type_) else pa.struct([type_.key_field, type_.item_field])
        children = [_array(array.values, below)]
        return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], offset=array.offset, children=children)
    if type_ == pa.uuid() and array.type == type_.storage_type:
        return pa.ExtensionArray.from_storage(type_, array)
    raise ValueError(f"a column is of type {array.type}, not {type_}")
