"""Arrow schemas of a table's rows, with field ids at every depth."""

from __future__ import annotations

from collections.abc import Iterable
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


def column_at(rows: pa.Table | pa.RecordBatch, path: tuple[int, ...]) -> pa.Array | pa.ChunkedArray:
    """Return the column at these child indexes; null where a struct around it is null."""
    top, *below = path
    return pc.struct_field(rows.column(top), below) if below else rows.column(top)


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
    return table.cast(target)
