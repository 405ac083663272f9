"""Rows find the partition that PyIceberg's transforms give them, and its path."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import UUIDType

from producer.iceberg.partitions import decode_partition, encode_partition, partition_path, partition_type
from producer.model.plan import Scope
from tests.support.rewriteunit import SCHEMA, rewrite_unit
from tests.support.rows import EVERYTHING, everything
from workers.arrow.partition_router import PartitionRouter

_FIELDS: list[tuple[int, Transform[Any, Any]]] = [
    *((field_id, IdentityTransform()) for field_id in [*range(2, 9), *range(10, 19)]),
    *((field_id, BucketTransform(4)) for field_id in (4, 7, 8, 9, 11, 13, 15, 16, 17, 18)),
    *((field_id, TruncateTransform(3)) for field_id in (15, 18)),
    *((field_id, VoidTransform()) for field_id in (5, 20)),
    *((11, make()) for make in (YearTransform, MonthTransform, DayTransform, HourTransform)),
    *((12, make()) for make in (YearTransform, MonthTransform, DayTransform, HourTransform)),
    (9, IdentityTransform()),
    (9, MonthTransform()),
]


def _rows() -> pa.RecordBatch:
    """Rows whose times Python can hold, which judges here."""
    rows = everything(300, seed=9)
    some = random.Random(1)
    for index, (type_, low, high) in {
        8: (pa.date32(), -300_000, 300_000),
        10: (pa.timestamp("us"), -(1 << 54), 1 << 54),
        11: (pa.timestamp("us", "UTC"), -(1 << 54), 1 << 54),
    }.items():
        drawn = [None if some.random() < 0.1 else some.randint(low, high) for _ in range(len(rows))]
        column = pa.array(drawn, pa.int32() if pa.types.is_date32(type_) else pa.int64()).view(type_)
        rows = rows.set_column(index, EVERYTHING.field(index), column)
    return rows


def _metadata(spec: PartitionSpec) -> TableMetadataV2:
    return TableMetadataV2(
        location="file:///nowhere",
        last_column_id=40,
        schemas=[SCHEMA],
        current_schema_id=SCHEMA.schema_id,
        partition_specs=[spec],
        default_spec_id=spec.spec_id,
        sort_orders=[],
        default_sort_order_id=0,
        **{"last-updated-ms": 0},
    )


@pytest.mark.parametrize(("field_id", "transform"), _FIELDS, ids=str)
def test_values_and_paths_of_every_type_and_transform(field_id: int, transform: Transform[Any, Any]) -> None:
    spec = PartitionSpec(
        PartitionField(field_id, 1000, transform, "a/b"), PartitionField(2, 1001, IdentityTransform(), "flag")
    )
    unit = rewrite_unit(spec=spec, scopes=(None,))
    partitioning, rows = PartitionRouter.of(unit, EVERYTHING), _rows()
    found = [partitioning.partition(text) for text in partitioning.texts(unit.inputs[0], rows).to_pylist()]

    metadata = _metadata(spec)
    tuple_type = partition_type(metadata, spec)
    type_ = SCHEMA.find_type(field_id)
    function = transform.transform(type_)
    column = rows.column(field_id - 1) if not isinstance(transform, VoidTransform) else pa.nulls(len(rows))
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64())
    for partition, value, flag in zip(found, column.to_pylist(), rows.column(1).to_pylist(), strict=True):
        record = Record(function(value), flag)
        assert partition.values == tuple(encode_partition(tuple_type, record))
        decoded = decode_partition(tuple_type, partition.values)
        assert partition.label == partition_path(metadata, spec, decoded)
        if not (isinstance(record[0], float | bytes) or isinstance(type_, UUIDType)):
            assert decoded == record


def test_floats_are_distinguished_by_their_bits_but_for_nan() -> None:
    bits = [0x7FF8000000000001, 0xFFF8000000000000, 0x8000000000000000, 0]
    doubles = pa.array(np.array(bits, np.uint64).view(np.float64))
    rows = everything(4).set_column(5, EVERYTHING.field(5), doubles)
    unit = rewrite_unit(spec=PartitionSpec(PartitionField(6, 1000, IdentityTransform(), "d")), scopes=(None,))
    partitioning = PartitionRouter.of(unit, EVERYTHING)
    one, other, minus, zero = partitioning.texts(unit.inputs[0], rows).to_pylist()
    assert one == other == struct.pack("<d", math.nan).hex()
    assert minus != zero
    assert partitioning.partition(minus).label == "d=-0.0"


def test_what_a_scope_says_is_taken_and_an_empty_text_is_not_null() -> None:
    spec = PartitionSpec(PartitionField(15, 1000, IdentityTransform(), "string"))
    known = Scope(spec_id=0, values=("6162",), label="string=of its own")
    unit = rewrite_unit(files=2, spec=spec, scopes=(None, known))
    partitioning = PartitionRouter.of(unit, EVERYTHING)
    rows = everything(3).set_column(14, EVERYTHING.field(14), pa.array(["", None, "ab"]))
    assert partitioning.texts(unit.inputs[1], rows).to_pylist() == ["6162"] * 3
    found = [partitioning.partition(text) for text in partitioning.texts(unit.inputs[0], rows).to_pylist()]
    assert found == [
        Scope(spec_id=0, values=("",), label="string="),
        Scope(spec_id=0, values=(None,), label="string=null"),
        known,
    ]


def test_without_partition_fields_there_is_one_partition() -> None:
    unit = rewrite_unit(scopes=(None,))
    partitioning = PartitionRouter.of(unit, EVERYTHING)
    texts = partitioning.texts(unit.inputs[0], everything(3)).to_pylist()
    assert [partitioning.partition(text) for text in texts] == [Scope(spec_id=0, values=(), label="")] * 3


def test_a_void_field_may_have_lost_its_column() -> None:
    spec = PartitionSpec(
        PartitionField(99, 1000, VoidTransform(), "gone"), PartitionField(2, 1001, IdentityTransform(), "flag")
    )
    unit = rewrite_unit(spec=spec, scopes=(None,))
    partitioning = PartitionRouter.of(unit, EVERYTHING)
    rows = everything(1).set_column(1, EVERYTHING.field(1), pa.array([True]))
    (text,) = partitioning.texts(unit.inputs[0], rows).to_pylist()
    assert partitioning.partition(text) == Scope(spec_id=0, values=(None, "01"), label="gone=null/flag=true")


def test_rows_cannot_be_routed_by_a_column_that_was_dropped() -> None:
    spec = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"))
    with pytest.raises(ValueError, match="column 99, which was dropped"):
        PartitionRouter.of(rewrite_unit(spec=spec, scopes=(None,)), EVERYTHING)
    known = Scope(spec_id=0, values=(None,), label="gone=null")
    assert PartitionRouter.of(rewrite_unit(spec=spec, scopes=(known,)), EVERYTHING).partition("-") == known
