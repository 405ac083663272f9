"""Rows of every type that a table may have, nulls at every level, made from a seed."""

from __future__ import annotations

import random
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

_FLOATS = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.5, -1.5, 5e-324]


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


#: A type of each kind; numbers and names as a table would have them, the names as awkward as they come.
EVERYTHING: pa.Schema = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=_id(1)),
        pa.field("flag", pa.bool_(), metadata=_id(2)),
        pa.field("int", pa.int32(), metadata=_id(3)),
        pa.field("long", pa.int64(), metadata=_id(4)),
        pa.field("float", pa.float32(), metadata=_id(5)),
        pa.field("double", pa.float64(), metadata=_id(6)),
        pa.field("decimal", pa.decimal128(9, 2), metadata=_id(7)),
        pa.field("wide", pa.decimal128(38, 10), metadata=_id(8)),
        pa.field("date", pa.date32(), metadata=_id(9)),
        pa.field("time", pa.time64("us"), metadata=_id(10)),
        pa.field("ts", pa.timestamp("us"), metadata=_id(11)),
        pa.field("tstz", pa.timestamp("us", "UTC"), metadata=_id(12)),
        pa.field("ns", pa.timestamp("ns"), metadata=_id(13)),
        pa.field("nstz", pa.timestamp("ns", "UTC"), metadata=_id(14)),
        pa.field("string", pa.string(), metadata=_id(15)),
        pa.field("uuid", pa.binary(16), metadata=_id(16)),
        pa.field("fixed", pa.binary(5), metadata=_id(17)),
        pa.field("binary", pa.binary(), metadata=_id(18)),
        pa.field("unknown", pa.null(), metadata=_id(19)),
        pa.field("a.b", pa.struct([pa.field("", pa.float64(), metadata=_id(21))]), metadata=_id(20)),
        pa.field("A.B", pa.list_(pa.field("element", pa.int32(), metadata=_id(23))), metadata=_id(22)),
        pa.field(
            "deep",
            pa.struct(
                [
                    pa.field(
                        "Map",
                        pa.map_(
                            pa.field("key", pa.string(), nullable=False, metadata=_id(26)),
                            pa.field(
                                "value",
                                pa.list_(
                                    pa.field(
                                        "element",
                                        pa.struct(
                                            [
                                                pa.field("x", pa.timestamp("ns", "UTC"), metadata=_id(29)),
                                                pa.field("X", pa.binary(16), nullable=False, metadata=_id(30)),
                                                pa.field("`", pa.decimal128(20, 3), metadata=_id(31)),
                                            ]
                                        ),
                                        metadata=_id(28),
                                    )
                                ),
                                metadata=_id(27),
                            ),
                        ),
                        metadata=_id(25),
                    ),
                    pa.field("map", pa.float32(), metadata=_id(32)),
                    pa.field("empty", pa.struct([]), metadata=_id(33)),
                ]
            ),
            metadata=_id(24),
        ),
    ]
)


def everything(rows: int, seed: int = 0, schema: pa.Schema = EVERYTHING) -> pa.RecordBatch:
    """Random rows; ``id`` counts them."""
    some = random.Random(seed)
    columns = [
        pa.array(range(rows), field.type)
        if field.name == "id"
        else pa.array([None if some.random() < 0.15 else value(field.type, some) for _ in range(rows)], field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def value(type_: pa.DataType, some: random.Random) -> Any:
    """A random value, small enough to repeat or at the very end of what its type can hold."""
    if pa.types.is_boolean(type_):
        return some.random() < 0.5
    if pa.types.is_floating(type_):
        drawn = some.choice(_FLOATS) if some.random() < 0.5 else some.gauss(0, 100)
        return struct.unpack("f", struct.pack("f", drawn))[0] if type_.bit_width == 32 else drawn
    if pa.types.is_decimal(type_):
        limit = 10 ** some.choice([1, type_.precision])
        return Decimal(f"{some.randint(1 - limit, limit - 1)}e{-type_.scale}")
    if pa.types.is_integer(type_) or pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        bits = some.choice([4, type_.bit_width - 1])
        return some.randint(-(1 << bits), (1 << bits) - 1)
    if pa.types.is_time(type_):
        return some.choice([0, 86_399_999_999, some.randrange(86_400_000_000)])
    if pa.types.is_string(type_):
        return "".join(some.choice(["a", "b", "", "Z", "é", "\uffee", "\U0001f600", "\0"]) for _ in range(4))
    if pa.types.is_fixed_size_binary(type_):
        return bytes(some.choice([0, 1, 127, 128, 255]) for _ in range(type_.byte_width))
    if pa.types.is_binary(type_):
        return bytes(some.choice([0, 127, 128, 255]) for _ in range(some.randrange(12)))
    if pa.types.is_struct(type_):
        return {
            field.name: None if field.nullable and some.random() < 0.15 else value(field.type, some) for field in type_
        }
    if pa.types.is_map(type_):
        return [(value(type_.key_type, some), _maybe(type_.item_type, some)) for _ in range(some.randrange(4))]
    if pa.types.is_list(type_):
        return [_maybe(type_.value_type, some) for _ in range(some.randrange(4))]
    return None


def _maybe(type_: pa.DataType, some: random.Random) -> Any:
    return None if some.random() < 0.15 else value(type_, some)


def bitwise(array: pa.Array) -> pa.Array:
    """The same with all floats as integers of their bits, at every depth: equal if and only if all bits are."""
    return array.view(_bitwise(array.type))


def _bitwise(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(type_):
        return pa.int32() if type_.bit_width == 32 else pa.int64()
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(_bitwise(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_bitwise(type_.key_type), type_.item_field.with_type(_bitwise(type_.item_type)))
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(_bitwise(type_.value_type)))
    return type_
