"""Partition tuples: equality, types under historic specs, text and back."""

from __future__ import annotations

import datetime
import math
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record
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
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from producer.common.errors import Corrupt
from producer.iceberg.partitions import (
    decode_partition,
    encode_partition,
    is_unpartitioned,
    partition_key,
    partition_path,
    partition_type,
    source_schema,
)


def spec_of(*fields: tuple[int, Transform[Any, Any]], spec_id: int = 0) -> PartitionSpec:
    return PartitionSpec(
        *(PartitionField(source, 1000 + n, transform, f"p{n}") for n, (source, transform) in enumerate(fields)),
        spec_id=spec_id,
    )


def metadata_of(*schemas: Schema, specs: tuple[PartitionSpec, ...]) -> TableMetadata:
    """A table whose last schema is the current one."""
    return TableMetadataV2(
        location="file:///t",
        last_column_id=100,
        schemas=list(schemas),
        current_schema_id=schemas[-1].schema_id,
        partition_specs=list(specs),
        default_spec_id=specs[-1].spec_id,
        sort_orders=[UNSORTED_SORT_ORDER],
    )


def schema_of(schema_id: int, **columns: tuple[int, IcebergType]) -> Schema:
    return Schema(
        *(NestedField(field_id, name, kind, required=False) for name, (field_id, kind) in columns.items()),
        schema_id=schema_id,
    )


def test_a_spec_without_fields_or_with_void_fields_only_is_unpartitioned() -> None:
    assert is_unpartitioned(PartitionSpec())
    assert is_unpartitioned(spec_of((1, VoidTransform()), (2, VoidTransform())))
    assert not is_unpartitioned(spec_of((1, VoidTransform()), (2, IdentityTransform())))


def test_null_meets_null_and_zeros_differ_by_sign() -> None:
    assert partition_key(0, Record(None, "a")) == partition_key(0, Record(None, "a"))
    assert partition_key(0, Record(math.nan)) == partition_key(0, Record(math.nan))
    assert partition_key(0, Record(-0.0)) != partition_key(0, Record(0.0))
    assert partition_key(0, Record(1)) != partition_key(1, Record(1))
    assert partition_key(0, Record(None)) != partition_key(0, Record("null"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BooleanType(), True),
        (IntegerType(), -7),
        (LongType(), 2**40),
        (FloatType(), 1.5),
        (FloatType(), -0.0),
        (DoubleType(), 0.1),
        (DateType(), -1),
        (TimeType(), 86_399_999_999),
        (TimestampType(), -1),
        (TimestamptzType(), 1_700_000_000_000_000),
        (TimestampNanoType(), 1_700_000_000_000_000_001),
        (StringType(), "à/b=%"),
        (StringType(), ""),
        (UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
        (FixedType(3), b"\x00\xffa"),
        (BinaryType(), b""),
        (DecimalType(9, 2), Decimal("-12.30")),
        (DecimalType(38, 10), Decimal("0.0000000001")),
    ],
    ids=str,
)
def test_text_and_back_is_lossless(kind: IcebergType, value: object) -> None:
    column = StructType(NestedField(1000, "p", kind, required=False), NestedField(1001, "q", kind, required=False))
    decoded = decode_partition(column, encode_partition(column, Record(value, None)))
    assert decoded == Record(value, None)
    assert type(decoded[0]) is type(value)
    assert repr(decoded[0]) == repr(value)


@pytest.mark.parametrize("bits", ["000000000000f8ff", "010000000000f87f", "000000000000f47f"])
def test_nan_is_one_partition_whatever_its_bits(bits: str) -> None:
    """Engines write NaN of either sign; the reference implementation compares them as equal."""
    [other] = struct.unpack("<d", bytes.fromhex(bits))
    assert partition_key(0, Record(other)) == partition_key(0, Record(math.nan))
    for kind in (FloatType(), DoubleType()):
        column = StructType(NestedField(1000, "p", kind, required=False))
        assert encode_partition(column, Record(other)) == encode_partition(column, Record(math.nan))
        assert encode_partition(column, Record(-0.0)) != encode_partition(column, Record(0.0))


def test_nan_survives_text() -> None:
    column = StructType(NestedField(1000, "p", DoubleType(), required=False))
    assert math.isnan(decode_partition(column, encode_partition(column, Record(math.nan)))[0])


def test_the_type_of_a_dropped_source_comes_from_the_newest_schema_that_had_it() -> None:
    old = schema_of(0, id=(1, LongType()), cat=(2, IntegerType()))
    promoted = schema_of(1, id=(1, LongType()), cat=(2, LongType()))
    current = schema_of(2, id=(1, LongType()))
    spec = spec_of((2, IdentityTransform()), (1, BucketTransform(4)))
    metadata = metadata_of(old, promoted, current, specs=(spec,))
    assert [field.field_type for field in partition_type(metadata, spec).fields] == [LongType(), IntegerType()]
    assert source_schema(metadata, spec).schema_id == 1
    assert partition_path(metadata, spec, Record(5, 3)) == "p0=5/p1=3"


def test_the_current_schema_goes_before_newer_ids() -> None:
    """A table may be set back to an older schema."""
    wide = schema_of(1, id=(1, LongType()))
    narrow = schema_of(0, id=(1, IntegerType()))
    spec = spec_of((1, IdentityTransform()))
    assert partition_type(metadata_of(wide, narrow, specs=(spec,)), spec).fields[0].field_type == IntegerType()


def test_partition_fields_are_optional_though_their_sources_are_not() -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    spec = spec_of((1, IdentityTransform()))
    assert not partition_type(metadata_of(schema, specs=(spec,)), spec).fields[0].required


def test_a_source_in_no_schema_is_inferred_from_the_transform_or_refused() -> None:
    schema = schema_of(0, id=(1, LongType()))
    known = spec_of((9, BucketTransform(2)), (9, DayTransform()), (9, VoidTransform()))
    metadata = metadata_of(schema, specs=(known,))
    assert [str(field.field_type) for field in partition_type(metadata, known).fields] == ["int", "date", "int"]
    for transform in (IdentityTransform(), TruncateTransform(2)):
        with pytest.raises(Corrupt, match="column 9"):
            partition_type(metadata, spec_of((9, transform)))


def test_paths_are_those_of_other_engines() -> None:
    schema = schema_of(0, s=(1, StringType()), ts=(2, TimestampType()), n=(3, IntegerType()))
    spec = spec_of((1, IdentityTransform()), (2, DayTransform()), (3, VoidTransform()), (1, TruncateTransform(2)))
    metadata = metadata_of(schema, specs=(spec,))
    day = (datetime.date(2024, 2, 29) - datetime.date(1970, 1, 1)).days
    assert partition_path(metadata, spec, Record("a/b", day, None, None)) == "p0=a%2Fb/p1=2024-02-29/p2=null/p3=null"
    assert partition_path(metadata, PartitionSpec(), Record()) == ""


def test_sources_may_be_fields_of_structs() -> None:
    inner = StructType(NestedField(2, "day", DateType(), required=False))
    schema = Schema(NestedField(1, "at", inner, required=False))
    spec = spec_of((2, IdentityTransform()))
    metadata = metadata_of(schema, specs=(spec,))
    assert partition_type(metadata, spec).fields[0].field_type == DateType()
    assert partition_path(metadata, spec, Record(0)) == "p0=1970-01-01"
