"""Arrow schemas of a table's rows, with field ids at every depth, and the leaf columns that files have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
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
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

#: The key of the field id in the metadata of an Arrow field.
FIELD_ID: Final = b"PARQUET:field_id"

#: Columns that keep a row's lineage through rewrites (spec, Row Lineage), with the ids that are reserved for them.
ROW_ID: Final = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED: Final = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)

_PLAIN: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    UUIDType: pa.binary(16),
    BinaryType: pa.binary(),
}


def written_schema(schema: Schema, *, lineage: bool) -> Schema:
    """Return the schema of data files: without columns of unknown type, and with those of row lineage."""
    stored = tuple(field for field in schema.fields if is_stored(field.field_type))
    return Schema(*stored, *((ROW_ID, LAST_UPDATED) if lineage else ()), schema_id=schema.schema_id)


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of rows of these columns.

    Raises:
        TypeError: a column has a type that is not supported; the text names it.
    """
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: NestedField) -> pa.Field:
    """Return the Arrow field, with its id."""
    try:
        type_ = arrow_type(field.field_type)
    except TypeError as error:
        raise TypeError(f"column {field.name}: {error}") from error
    return pa.field(field.name, type_, nullable=field.optional, metadata={FIELD_ID: str(field.field_id)})


def arrow_type(type_: IcebergType) -> pa.DataType:
    """Return the Arrow type of values of an Iceberg type."""
    if isinstance(type_, StructType):
        return pa.struct([arrow_field(field) for field in type_.fields if is_stored(field.field_type)])
    if isinstance(type_, ListType):
        return pa.list_(arrow_field(type_.element_field))
    if isinstance(type_, MapType):
        return pa.map_(arrow_field(type_.key_field), arrow_field(type_.value_field))
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, FixedType):
        return pa.binary(len(type_))
    plain = _PLAIN.get(type(type_))
    if plain is None:
        raise TypeError(f"values of type {type_} are not rewritten so far")
    return plain


def is_stored(type_: IcebergType) -> bool:
    """Return whether files hold values of the type; unknown columns are null everywhere (spec, Primitive Types)."""
    return not isinstance(type_, UnknownType)


def timestamp_unit(types: Iterable[IcebergType]) -> str:
    """Return the unit of timestamps that files store without one: nanoseconds if any column has them, at any depth."""
    return "ns" if any(_has_nanoseconds(type_) for type_ in types) else "us"


def _has_nanoseconds(type_: IcebergType) -> bool:
    if isinstance(type_, StructType):
        return any(_has_nanoseconds(field.field_type) for field in type_.fields)
    if isinstance(type_, ListType):
        return _has_nanoseconds(type_.element_type)
    if isinstance(type_, MapType):
        return _has_nanoseconds(type_.key_type) or _has_nanoseconds(type_.value_type)
    return isinstance(type_, TimestampNanoType | TimestamptzNanoType)


@dataclass(frozen=True, slots=True)
class ColumnDescriptor:
    """A leaf column of a file that is about to be written."""

    field_id: int
    #: The names from the top of the schema down, joined by dots, as Parquet has them.
    path: str
    type: pa.DataType
    #: Child indexes from the top of the schema down; None inside lists and maps, where rows have no single value.
    indexes: tuple[int, ...] | None

    def values(self, table: pa.Table) -> pa.ChunkedArray:
        """Return the value in every row, null where the column or a struct around it is null."""
        assert self.indexes is not None
        top, *rest = self.indexes
        return pc.struct_field(table.column(top), rest) if rest else table.column(top)


def column_descriptors(schema: pa.Schema) -> tuple[ColumnDescriptor, ...]:
    """Return all leaf columns, in the order in which a file has them.

    Raises:
        ValueError: a column has no field id.
    """
    return tuple(_walk(((field.name, field) for field in schema), ()))


def _walk(fields: Iterable[tuple[str, pa.Field]], above: tuple[int, ...] | None) -> Iterator[ColumnDescriptor]:
    for index, (path, field) in enumerate(fields):
        indexes = None if above is None else (*above, index)
        type_ = field.type
        if pa.types.is_struct(type_):
            yield from _walk(((f"{path}.{child.name}", child) for child in type_), indexes)
        elif pa.types.is_map(type_):
            parts = ((f"{path}.key_value.key", type_.key_field), (f"{path}.key_value.value", type_.item_field))
            yield from _walk(parts, None)
        elif pa.types.is_list(type_):
            yield from _walk(((f"{path}.list.element", type_.value_field),), None)
        else:
            text = (field.metadata or {}).get(FIELD_ID)
            if text is None:
                raise ValueError(f"column {path} has no field id")
            yield ColumnDescriptor(int(text), path, type_, indexes)


def with_uuid_types(schema: pa.Schema, iceberg: Schema) -> pa.Schema:
    """Return the schema with Arrow's UUID type wherever Iceberg's has it, at every depth; field ids stay.

    Iceberg asks for Parquet's logical type (spec, Appendix A), which Arrow writes for its own UUID type alone.
    """

    def is_uuid(field: pa.Field) -> bool:
        return isinstance(iceberg.find_type(int(field.metadata[FIELD_ID])), UUIDType)

    return pa.schema([_with_uuids(field, is_uuid) for field in schema])


def cast_uuids(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same rows in a schema with UUID types; no values are copied.

    Raises:
        ValueError: the table has other columns.
    """
    if table.column_names != schema.names:
        raise ValueError(f"the columns are {table.column_names}, not {schema.names}")
    columns = [
        column
        if column.type == type_
        else pa.chunked_array([_cast_uuids(chunk, type_) for chunk in column.chunks], type_)
        for column, type_ in zip(table.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _with_uuids(field: pa.Field, is_uuid: Callable[[pa.Field], bool]) -> pa.Field:
    type_ = field.type
    if pa.types.is_struct(type_):
        return field.with_type(pa.struct([_with_uuids(child, is_uuid) for child in type_]))
    if pa.types.is_list(type_):
        return field.with_type(pa.list_(_with_uuids(type_.value_field, is_uuid)))
    if pa.types.is_map(type_):
        return field.with_type(pa.map_(_with_uuids(type_.key_field, is_uuid), _with_uuids(type_.item_field, is_uuid)))
    return field.with_type(pa.uuid()) if is_uuid(field) else field


def _cast_uuids(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    if pa.types.is_struct(type_) and pa.types.is_struct(array.type):
        children = [_cast_uuids(array.field(index), child.type) for index, child in enumerate(type_)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=mask)
    if (pa.types.is_list(type_) and pa.types.is_list(array.type)) or (
        pa.types.is_map(type_) and pa.types.is_map(array.type)
    ):
        below = type_.value_type if pa.types.is_list(type_) else pa.struct([type_.key_field, type_.item_field])
        children = [_cast_uuids(array.values, below)]
        return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], offset=array.offset, children=children)
    if type_ == pa.uuid() and array.type == type_.storage_type:
        return pa.ExtensionArray.from_storage(type_, array)
    raise ValueError(f"a column is of type {array.type}, not {type_}")
