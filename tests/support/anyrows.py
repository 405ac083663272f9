"""A table with a column of every type, and rows for it at the edges of what the types can hold."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
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
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from workers.arrow.schema import LAST_UPDATED, ROW_ID, arrow_schema


def optional(field_id: int, name: str, type_: IcebergType) -> NestedField:
    return NestedField(field_id, name, type_, required=False)


def required(field_id: int, name: str, type_: IcebergType) -> NestedField:
    return NestedField(field_id, name, type_, required=True)


SCHEMA = Schema(
    required(1, "id", LongType()),
    optional(2, "flag", BooleanType()),
    optional(3, "int", IntegerType()),
    optional(4, "float", FloatType()),
    optional(5, "double", DoubleType()),
    optional(6, "small", DecimalType(9, 2)),
    optional(7, "middle", DecimalType(18, 0)),
    optional(8, "wide", DecimalType(38, 10)),
    optional(9, "date", DateType()),
    optional(10, "time", TimeType()),
    optional(11, "ts", TimestampType()),
    optional(12, "tstz", TimestamptzType()),
    optional(13, "ns", TimestampNanoType()),
    optional(14, "nstz", TimestamptzNanoType()),
    optional(15, "string", StringType()),
    optional(16, "uuid", UUIDType()),
    optional(17, "fixed", FixedType(20)),
    optional(18, "binary", BinaryType()),
    optional(
        19,
        "outer",
        StructType(
            optional(20, "uuid", UUIDType()),
            required(21, "string", StringType()),
            optional(22, "inner", StructType(required(23, "double", DoubleType()), optional(24, "a b", LongType()))),
            optional(25, "list", ListType(26, UUIDType(), element_required=False)),
        ),
    ),
    optional(
        27,
        "map",
        MapType(
            28,
            StringType(),
            29,
            StructType(optional(30, "uuid", UUIDType()), required(31, "ns", TimestampNanoType())),
            value_required=False,
        ),
    ),
    optional(32, "lists", ListType(33, ListType(34, IntegerType(), element_required=True), element_required=True)),
    ROW_ID,
    LAST_UPDATED,
    schema_id=7,
)
ARROW: pa.Schema = arrow_schema(SCHEMA)

_LETTERS = st.sampled_from("aé\0\x7f\ud7ff\ue000\uffff\U00010000\U0010ffff")
_OCTETS = st.sampled_from([b"\x00", b"a", b"\x7f", b"\x80", b"\xfe", b"\xff"])


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(-3, 3)


def _octets(least: int, most: int) -> st.SearchStrategy[bytes]:
    return st.lists(_OCTETS, min_size=least, max_size=most).map(b"".join)


_TEXT = st.one_of(
    st.text(_LETTERS, max_size=20),
    st.text(_LETTERS, max_size=3).map(lambda end: "\U0010ffff" * 15 + end),
    st.text(_LETTERS, max_size=3).map(lambda end: "z" * 5000 + end),
)
_VALUES: dict[type[IcebergType], st.SearchStrategy[Any]] = {
    BooleanType: st.booleans(),
    IntegerType: _integers(32),
    LongType: _integers(64),
    FloatType: st.floats(width=32) | st.sampled_from([0.0, -0.0, float("nan")]),
    DoubleType: st.floats() | st.sampled_from([0.0, -0.0, float("nan")]),
    DateType: _integers(32),
    TimeType: st.integers(0, 86_399_999_999),
    TimestampType: _integers(64),
    TimestamptzType: _integers(64),
    TimestampNanoType: _integers(64),
    TimestamptzNanoType: _integers(64),
    StringType: _TEXT,
    UUIDType: _octets(16, 16),
    BinaryType: _octets(0, 20) | _octets(0, 3).map(lambda end: b"\xff" * 15 + end) | st.just(b"b" * 5000),
}


def values(type_: IcebergType) -> st.SearchStrategy[Any]:
    """Values as Arrow takes them."""
    if isinstance(type_, StructType):
        return st.fixed_dictionaries({field.name: _field(field) for field in type_.fields})
    if isinstance(type_, ListType):
        return st.lists(_field(type_.element_field), max_size=2)
    if isinstance(type_, MapType):
        return st.lists(st.tuples(values(type_.key_type), _field(type_.value_field)), max_size=2)
    if isinstance(type_, DecimalType):
        most = 10**type_.precision - 1
        numbers = st.integers(-most, most) | st.sampled_from([-most, most, -128, 127, 128, 0])
        return numbers.map(lambda number: _decimal(number, type_.scale))
    if isinstance(type_, FixedType):
        return _octets(len(type_), len(type_))
    return _VALUES[type(type_)]


def tables(schema: Schema = SCHEMA, least: int = 0, most: int = 6) -> st.SearchStrategy[pa.Table]:
    """Few rows."""
    arrow = arrow_schema(schema)
    rows = st.lists(
        st.fixed_dictionaries({field.name: _field(field) for field in schema.fields}), min_size=least, max_size=most
    )
    return rows.map(lambda drawn: pa.Table.from_pylist(drawn, schema=arrow))


def leaves(schema: Schema = SCHEMA) -> dict[int, tuple[PrimitiveType, tuple[str, ...]]]:
    """Columns of which a row has one value, by id: their types, and the names that lead to them."""

    def below(type_: StructType, names: tuple[str, ...]) -> dict[int, tuple[PrimitiveType, tuple[str, ...]]]:
        found: dict[int, tuple[PrimitiveType, tuple[str, ...]]] = {}
        for field in type_.fields:
            if isinstance(field.field_type, StructType):
                found |= below(field.field_type, (*names, field.name))
            elif isinstance(field.field_type, PrimitiveType):
                found[field.field_id] = field.field_type, (*names, field.name)
        return found

    return below(schema.as_struct(), ())


def column(tables: list[pa.Table], names: tuple[str, ...]) -> list[Any]:
    """A column's values, one for each row: numbers for everything temporal."""
    found = []
    for table in tables:
        array = table.column(names[0])
        for row in array:
            for name in names[1:]:
                row = row[name] if row.is_valid else pa.scalar(None)
            found.append(None if not row.is_valid else row.value if pa.types.is_temporal(row.type) else row.as_py())
    return found


def _field(field: NestedField) -> st.SearchStrategy[Any]:
    drawn = values(field.field_type)
    return drawn if field.required else st.none() | drawn


def _decimal(number: int, scale: int) -> Decimal:
    return Decimal((int(number < 0), tuple(int(digit) for digit in str(abs(number))), -scale))


def plain(table: pa.Table) -> str:
    """All rows as text that tells -0.0 from 0.0, equals itself where a NaN is, and knows numbers for all times."""
    return repr([[_plain(value) for value in column] for column in table.columns])


def _plain(value: pa.Scalar) -> Any:
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return [_plain(value[index]) for index in range(len(value.type))]
    if isinstance(value, pa.ExtensionScalar):
        return _plain(value.value)
    if isinstance(value, pa.ListScalar):  # a map, too
        return [_plain(each) for each in value.values]
    if pa.types.is_temporal(value.type):
        return value.value
    return value.as_py()
