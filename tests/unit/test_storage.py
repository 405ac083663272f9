"""What is stored comes back bit by bit: values, types, names and metadata."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.rows import everything
from workers.storage import StorageSchema, stored


def _same(one: pa.RecordBatch, other: pa.RecordBatch) -> None:
    assert one.schema.equals(other.schema, check_metadata=True)
    other.validate(full=True)
    for field, before, after in zip(one.schema, one.columns, other.columns, strict=True):
        assert _told(after.type) == _told(field.type)
        assert stored(before).equals(stored(after))
        if "float" not in str(before.type) and "double" not in str(before.type):
            assert before.equals(after)


def _told(type_: pa.DataType) -> Any:
    """A type with what all fields within it say; Arrow's own comparison stumbles over maps."""
    if pa.types.is_map(type_):
        fields = [type_.key_field, type_.item_field]
    else:
        fields = [type_.field(index) for index in range(type_.num_fields)]
    return [(field.name, field.nullable, field.metadata, _told(field.type)) for field in fields] or str(type_)


@pytest.mark.parametrize(("offset", "length"), [(0, None), (3, None), (0, 5), (2, 4), (1, 0)])
def test_rows_of_all_types_come_back(offset: int, length: int | None) -> None:
    rows = everything(200).slice(offset, length)
    storage = StorageSchema.of(rows.schema)
    _same(rows, storage.restored(storage.stored(rows)))


def test_no_row_is_needed() -> None:
    rows = everything(0)
    storage = StorageSchema.of(rows.schema)
    _same(rows, storage.restored(storage.stored(rows)))


def test_the_bits_of_floats_stay() -> None:
    bits = [0x7FF8000000000001, 0x7FF0000000000001, 0xFFF8000000000000, 0x8000000000000000, 0]
    rows = pa.record_batch({"x": pa.array(np.array(bits, np.uint64).view(np.float64))})
    storage = StorageSchema.of(rows.schema)
    back = storage.restored(storage.stored(rows))
    assert back.column(0).view(pa.uint64()).to_pylist() == bits


def test_only_what_spark_carries_is_stored_under_names_by_position() -> None:
    schema = pa.schema(
        [
            pa.field("a.b", pa.map_(pa.string(), pa.struct([pa.field("x", pa.float32()), pa.field("X", pa.date32())]))),
            pa.field("A.B", pa.list_(pa.timestamp("ns", "UTC"))),
            pa.field("", pa.struct([])),
            pa.field("d", pa.decimal128(19, 2)),
        ]
    )
    assert StorageSchema.of(schema).spark_ddl == (
        "c0 array<struct<f0: string, f1: struct<f0: int, f1: int>>>, c1 array<bigint>, c2 boolean, c3 binary"
    )


def test_map_keys_may_repeat() -> None:
    rows = pa.record_batch({"m": pa.array([[("a", 1), ("a", 2)], None, []], pa.map_(pa.string(), pa.int32()))})
    storage = StorageSchema.of(rows.schema)
    assert storage.restored(storage.stored(rows)).column(0).to_pylist() == [[("a", 1), ("a", 2)], None, []]


def test_what_hides_beneath_nulls_does_no_harm() -> None:
    inner = pa.array([1, 2, 3, 4], pa.int32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3, 4], pa.int32()), inner, mask=pa.array([False, True, False]))
    structs = pa.StructArray.from_arrays([lists], names=["l"], mask=pa.array([True, False, False]))
    rows = pa.record_batch({"s": structs})
    storage = StorageSchema.of(rows.schema)
    back = storage.restored(storage.stored(rows))
    assert back.column(0).to_pylist() == [None, {"l": None}, {"l": [4]}]


@pytest.mark.parametrize("text", ["0", "-1", "0.01", "999999999999999999", "-999999999999999999", "-0.07"])
def test_decimals_of_one_and_of_two_words(text: str) -> None:
    for precision in (18, 20, 38):
        value = Decimal(text).scaleb(-2).quantize(Decimal("0.0001")) if "." in text else Decimal(text)
        scale = 4 if "." in text else 0
        rows = pa.record_batch({"d": pa.array([None, value, None], pa.decimal128(precision, scale))})
        storage = StorageSchema.of(rows.schema)
        assert storage.restored(storage.stored(rows)).equals(rows)


def test_a_decimal_beyond_its_precision_is_not_cut() -> None:
    raw = pa.py_buffer(struct.pack("<qq", 5, 1))
    rows = pa.record_batch({"d": pa.Array.from_buffers(pa.decimal128(18, 0), 1, [None, raw])})
    with pytest.raises(ValueError, match="more digits"):
        StorageSchema.of(rows.schema).stored(rows)


@pytest.mark.parametrize("type_", [pa.large_string(), pa.duration("us"), pa.uint8(), pa.list_(pa.int32(), 3)])
def test_other_types_are_refused(type_: pa.DataType) -> None:
    with pytest.raises(TypeError, match="rows have no type"):
        StorageSchema.of(pa.schema([("x", type_)]))


def test_text_that_is_no_text_stays() -> None:
    raw: Any = pa.array([b"\xff\xfe", b"ok"]).view(pa.string())
    rows = pa.record_batch({"s": raw, "t": pa.array([datetime.time(1), None], pa.time64("us"))})
    storage = StorageSchema.of(rows.schema)
    assert storage.restored(storage.stored(rows)).column(0).cast(pa.binary()).to_pylist() == [b"\xff\xfe", b"ok"]
