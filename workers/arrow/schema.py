"""Arrow schemas of a table's rows, with field ids at every depth, and the leaf columns that files have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

_UUID: Final = pa.binary(16)
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
    BinaryType: pa.binary(),
}


def data_file_schema(schema: Schema, *, lineage: bool) -> Schema:
    """Return the schema of data files: without columns of unknown type, and with those of row lineage."""
    stored = tuple(field for field in schema.fields if is_stored(field.field_type))
    return Schema(*stored, *((ROW_ID, LAST_UPDATED) if lineage else ()), schema_id=schema.schema_id)


def arrow_schema(schema: Schema, uuid_type: pa.DataType = _UUID) -> pa.Schema:
    """Return the Arrow schema of rows of these columns, with field ids at every depth.

    Iceberg asks for Parquet's logical type of UUIDs (spec, Appendix A), which Arrow writes for its own UUID type alone.

    Raises:
        TypeError: a column has a type that is not supported; the text names it.
    """
    return pa.schema([arrow_field(field, uuid_type) for field in schema.fields])


def arrow_field(field: NestedField, uuid_type: pa.DataType = _UUID) -> pa.Field:
    """Return the Arrow field, with its id."""
    try:
        type_ = arrow_type(field.field_type, uuid_type)
    except TypeError as error:
        raise TypeError(f"column {field.name}: {error}") from error
    return pa.field(field.name, type_, nullable=field.optional, metadata={FIELD_ID: str(field.field_id)})


def arrow_type(type_: IcebergType, uuid_type: pa.DataType = _UUID) -> pa.DataType:
    """Return the Arrow type of values of an Iceberg type."""
    if isinstance(type_, StructType):
        return pa.struct([arrow_field(field, uuid_type) for field in type_.fields if is_stored(field.field_type)])
    if isinstance(type_, ListType):
        return pa.list_(arrow_field(type_.element_field, uuid_type))
    if isinstance(type_, MapType):
        return pa.map_(arrow_field(type_.key_field, uuid_type), arrow_field(type_.value_field, uuid_type))
    if isinstance(type_, DecimalType):
        return pa.decimal128(type_.precision, type_.scale)
    if isinstance(type_, FixedType):
        return pa.binary(len(type_))
    if isinstance(type_, UUIDType):
        return uuid_type
    plain = _PLAIN.get(type(type_))
    if plain is None:
        raise TypeError(f"values of type {type_} are not rewritten so far")
    return plain


def is_stored(type_: IcebergType) -> bool:
    """Return whether files hold values of the type; unknown columns are null everywhere (spec, Primitive Types)."""
    return not isinstance(type_, UnknownType)


def timestamp_unit(types: Iterable[IcebergType]) -> str:
    """Return the unit of timestamps that files store without one: nanoseconds if any column has them."""
    return "ns" if any(isinstance(type_, TimestampNanoType | TimestamptzNanoType) for type_ in types) else "us"


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
        return column_at(table, self.indexes)


def column_at(rows: pa.Table | pa.RecordBatch, path: tuple[int, ...]) -> pa.Array | pa.ChunkedArray:
    """Return the column at these child indexes; null where a struct around it is null."""
    top, *below = path
    return pc.struct_field(rows.column(top), below) if below else rows.column(top)


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


def cast_uuids(table: pa.Table, schema: Schema) -> pa.Table:
    """Return the rows of a table of these columns with Arrow's own UUID type; no values are copied.

    Raises:
        ValueError: the table has other columns.
    """
    own, target = arrow_schema(schema), arrow_schema(schema, pa.uuid())
    if table.column_names != own.names:
        raise ValueError(f"the columns are {table.column_names}, not {own.names}")
    for name, found, wanted in zip(own.names, table.schema.types, own.types, strict=True):
        if found != wanted:
            raise ValueError(f"column {name} is of type {found}, not {wanted}")
    columns = [
        column if column.type == type_ else column.cast(type_)
        for column, type_ in zip(table.columns, target.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=target)
