"""The Arrow types that rows are read and written in, with field ids at every depth."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
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
    """The schema of data files: the table's without columns of unknown type, and with those of row lineage."""
    stored = tuple(field for field in schema.fields if is_stored(field.field_type))
    return Schema(*stored, *((ROW_ID, LAST_UPDATED) if lineage else ()), schema_id=schema.schema_id)


def arrow_schema(schema: Schema) -> pa.Schema:
    """The Arrow schema of rows of these columns.

    Raises:
        TypeError: a column is of a type that rows cannot have here; names it.
    """
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: NestedField) -> pa.Field:
    """One field with its id."""
    try:
        type_ = arrow_type(field.field_type)
    except TypeError as error:
        raise TypeError(f"column {field.name}: {error}") from error
    return pa.field(field.name, type_, nullable=field.optional, metadata={"PARQUET:field_id": str(field.field_id)})


def arrow_type(type_: IcebergType) -> pa.DataType:
    """The Arrow type of values of an Iceberg type."""
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
    """Whether files hold values of the type; unknown columns are null everywhere (spec, Primitive Types)."""
    return not isinstance(type_, UnknownType)
