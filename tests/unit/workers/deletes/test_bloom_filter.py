"""The filter of keys and their bounds: nothing that matches is ever left out."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimeType,
)

from workers.arrow.canonical import canonical_array
from workers.arrow.fields import leaves
from workers.deletes.bloom_filter import KeyFilter, hash_keys
from workers.formats.format_model import Bounds, bounds_of
from workers.formats.parquet.format_model import ParquetDataFile
from workers.model.delete_set import KeyColumn

TYPES = {
    pa.bool_(): st.booleans(),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.string(): st.text(max_size=50),
    pa.binary(): st.binary(max_size=70),
    pa.decimal128(38, 2): st.decimals(-(10**30), 10**30, places=2),
}


@pytest.mark.parametrize("type_", TYPES, ids=str)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_key_has_one_hash_wherever_it_stands(type_: pa.DataType, data: Any) -> None:
    rows = data.draw(st.lists(st.none() | TYPES[type_], min_size=1, max_size=12))
    whole = pa.array(rows, type_)
    hashes = hash_keys([whole])
    for index, row in enumerate(rows):
        assert hash_keys([whole.slice(index, 1)])[0] == hashes[index]
        assert hash_keys([pa.array([row], type_)])[0] == hashes[index]


def test_what_lies_below_a_null_does_not_count() -> None:
    values = np.array([1, 2, 3])
    masked = pa.array(values, mask=np.array([False, True, False]))
    assert list(hash_keys([masked])) == list(hash_keys([pa.array([1, None, 3])]))


def test_hashes_tell_keys_apart() -> None:
    texts = pa.array(["", "a", "b", "ab", "ba", "a" * 8, "a" * 9, "a" * 40, "a" * 39 + "b", None])
    assert len(set(hash_keys([texts]))) == len(texts)
    left, right = pa.array([1, 2, 1, None, 0]), pa.array([2, 1, 1, 0, None])
    assert len(set(hash_keys([left, right]))) == 5
    assert hash_keys([left], 1)[0] != hash_keys([left], 2)[0]
    many = pa.array([f"customer-{n:020d}" for n in range(50_000)])
    assert len(np.unique(hash_keys([many]))) == 50_000


@pytest.mark.parametrize("keys", [0, 1, 5, 100_000])
def test_all_keys_pass_and_few_others(tmp_path: Path, keys: int) -> None:
    made = KeyFilter.create(tmp_path / "filter", keys, 1 << 30)
    made.add(hash_keys([pa.array(range(keys), pa.int64())]))
    made.add(hash_keys([pa.array(range(keys), pa.int64())]))
    opened = KeyFilter.open(tmp_path / "filter")
    assert opened.may_contain(hash_keys([pa.array(range(keys), pa.int64())])).all()
    others = opened.may_contain(hash_keys([pa.array(range(keys, keys + 100_000), pa.int64())])).mean()
    assert others < (0.02 if keys > 5 else 0.3)
    assert abs(opened.distinct(10**9) - keys) <= 1 + keys // 50


def test_a_filter_that_is_too_small_lets_everything_through(tmp_path: Path) -> None:
    made = KeyFilter.create(tmp_path / "filter", 100_000, 64)
    made.add(hash_keys([pa.array(range(100_000))]))
    assert made.may_contain(hash_keys([pa.array(range(200_000))])).all()
    assert made.distinct(100_000) == 100_000


def statistics(tmp_path: Path, array: pa.Array, **options: Any) -> tuple[ParquetDataFile, Any]:
    schema = pa.schema([pa.field("k", array.type, metadata={"PARQUET:field_id": "1"})])
    pq.write_table(pa.Table.from_arrays([array], schema=schema), tmp_path / "f.parquet", **options)
    file = ParquetDataFile(pa.OSFile(f"{tmp_path}/f.parquet"))
    return file, [leaves(file.schema_arrow, None)[1]]


@pytest.mark.parametrize("beside", [pa.array(["b", "c"]), pa.array([None, None], pa.string())], ids=["other", "null"])
def test_a_struct_in_place_of_a_missing_column_is_never_judged(tmp_path: Path, beside: pa.Array) -> None:
    """The statistics at its place are those of its first field, which is another column."""
    inner = pa.field("a", pa.string(), metadata={"PARQUET:field_id": "3"})
    schema = pa.schema([pa.field("nest", pa.struct([inner]), metadata={"PARQUET:field_id": "2"})])
    nest = pa.StructArray.from_arrays([beside], fields=[inner])
    pq.write_table(pa.Table.from_arrays([nest], schema=schema), tmp_path / "f.parquet")
    file = ParquetDataFile(pa.OSFile(f"{tmp_path}/f.parquet"))
    column = KeyColumn(4, StringType(), "x", parent=2)
    bounds = bounds_of([column], [pa.array(["x"])])
    assert file.may_match(0, [column], [leaves(file.schema_arrow, None, structs=True)[2]], bounds)


DAY = datetime.date


@pytest.mark.parametrize(
    ("type_", "array", "below", "inside", "above"),
    [
        (LongType(), pa.array([5, None, 9]), 4, 6, 10),
        (LongType(), pa.array([-5, 9], pa.int32()), -6, 0, 10),
        (DateType(), pa.array([DAY(2024, 1, 2), DAY(2024, 1, 4)]), 19723, 19725, 19727),
        (TimeType(), pa.array([1, 3], pa.time32("ms")), 999, 2000, 3001),
        (TimestampType(), pa.array([-2, 1], pa.timestamp("ms")), -2001, 0, 1001),
        (TimestampType(), pa.array([-1500, 1500], pa.timestamp("ns")), -3, 1, 2),
        (TimestampType(), pa.array([DAY(1970, 1, 1), DAY(1970, 1, 3)]), -1, 5, 2 * 86_400_000_000 + 1),
        (StringType(), pa.array(["b", "ä"]), "a", "c", "ö"),
        (BinaryType(), pa.array([b"\x01", b"\xf0"]), b"\x00", b"\x7f", b"\xf1"),
    ],
    ids=str,
)
def test_row_groups_outside_the_deletes_bounds(
    tmp_path: Path, type_: PrimitiveType, array: pa.Array, below: Any, inside: Any, above: Any
) -> None:
    file, found = statistics(tmp_path, array)
    column = (KeyColumn(1, type_),)
    own = canonical_array(array, type_)

    def kept(keys: list[Any]) -> bool:
        return file.may_match(0, column, found, bounds_of(column, [pa.array(keys, own.type)]))

    assert [kept([below]), kept([inside]), kept([above])] == [False, True, False]
    assert kept([below, above])
    assert kept([below, None]) == bool(array.null_count)
    assert kept([None]) == bool(array.null_count)
    for value in own.drop_null().to_pylist():
        assert kept([value])


@pytest.mark.parametrize(
    ("type_", "array"),
    [
        (DoubleType(), pa.array([1.0, 2.0])),
        (DecimalType(9, 2), pa.array([Decimal("1.00"), Decimal("2.00")], pa.decimal128(9, 2))),
        (LongType(), pa.array([1, 2], pa.uint32())),
    ],
    ids=str,
)
def test_types_without_an_order_to_rely_on_are_always_read(
    tmp_path: Path, type_: PrimitiveType, array: pa.Array
) -> None:
    file, found = statistics(tmp_path, array, store_decimal_as_integer=pa.types.is_decimal(array.type))
    column = (KeyColumn(1, type_),)
    deletes = pa.array([99], pa.int64()) if not pa.types.is_decimal(array.type) else array
    assert file.may_match(0, column, found, bounds_of(column, [deletes]))


def test_row_groups_without_statistics_are_read(tmp_path: Path) -> None:
    file, found = statistics(tmp_path, pa.array([1, 2]), write_statistics=False)
    column = (KeyColumn(1, LongType()),)
    assert file.may_match(0, column, found, (Bounds(50, 60),))
    assert file.may_match(0, column, [None], (Bounds(50, 60),))


def test_row_groups_of_nulls_only(tmp_path: Path) -> None:
    file, found = statistics(tmp_path, pa.array([None, None], pa.int64()))
    column = (KeyColumn(1, LongType()),)
    assert not file.may_match(0, column, found, (Bounds(50, 60),))
    assert file.may_match(0, column, found, (Bounds(50, 60, nulls=True),))
    assert file.may_match(0, column, found, (None,))


def test_bounds_of_several_batches() -> None:
    union: Callable[..., Bounds] = Bounds.union
    assert union(Bounds(1, 5), Bounds(3, 9, nulls=True)) == Bounds(1, 9, nulls=True)
    assert union(Bounds(nulls=True), Bounds(3, 9)) == Bounds(3, 9, nulls=True)
    assert union(Bounds(3, 9), Bounds()) == Bounds(3, 9)
    assert Bounds.of(pa.array(["ä", "b", None])) == Bounds(b"b", "ä".encode(), nulls=True)
