"""Partition tuples: their type under any spec, also historic ones, their identity, and their text."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeAlias, cast

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, IntegerType, NestedField, PrimitiveType, StructType

from producer.common.errors import Corrupt
from producer.model.partition_values import decode_value, encode_value, path_schema
from producer.model.plan import Scope

#: Spec id and values; two keys are equal if and only if both files lie in the same partition.
PartitionKey: TypeAlias = tuple[int, tuple[Any, ...]]


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a delete file of this spec is global.

    A spec whose fields are all ``void`` is unpartitioned, as in the reference implementation.
    """
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def partition_key(spec_id: int, partition: Record) -> PartitionKey:
    """Return the hashable identity of a partition.

    Null equals null, NaN equals NaN whatever its bits, and -0.0 differs from 0.0.
    """
    return spec_id, tuple(
        struct.pack("<d", value) if isinstance(value, float) else value for value in _values(partition)
    )


def newest_type(metadata: TableMetadata, field_id: int) -> IcebergType | None:
    """Return the current type of a column, the last one if it was dropped, or None if no schema has it."""
    for schema in _newest_first(metadata):
        with suppress(ValueError):
            return schema.find_type(field_id)
    return None


def source_schema(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """Return the newest schema with all source columns of a spec: the current one, unless a column was dropped."""
    sources = {field.source_id for field in spec.fields}
    candidates = (schema for schema in _newest_first(metadata) if sources <= schema.field_ids)
    return next(candidates, metadata.schema())


def partition_type(metadata: TableMetadata, spec: PartitionSpec) -> StructType:
    """Return the struct type of a spec's partition tuples; every field is optional.

    The type of a dropped source column comes from the newest schema that has it.

    Raises:
        Corrupt: No schema of the table has the column, and the type does not follow from the transform alone.
    """
    return StructType(
        *(
            NestedField(field.field_id, field.name, _result_type(metadata, spec, field), required=False)
            for field in spec.fields
        )
    )


def partition_path(metadata: TableMetadata, spec: PartitionSpec, partition: Record) -> str:
    """Return the Hive-style path of a partition, such as ``day=2026-01-31/region=eu``; empty if it has no fields."""
    return spec.partition_to_path(partition, path_schema(spec, lambda source_id: newest_type(metadata, source_id)))


def encode_partition(struct_type: StructType, partition: Record) -> tuple[str | None, ...]:
    """Return the text of each value of a partition tuple.

    No type loses anything: :func:`decode_partition` returns the values that the manifest reader returns. The exception
    are the bits of NaN: every NaN has the same text.
    """
    return tuple(
        encode_value(cast(PrimitiveType, field.field_type), value)
        for field, value in zip(struct_type.fields, _values(partition), strict=True)
    )


def decode_partition(struct_type: StructType, texts: Sequence[str | None]) -> Record:
    """Return the partition tuple that :func:`encode_partition` encoded under the same spec."""
    return Record(
        *(
            decode_value(cast(PrimitiveType, field.field_type), text)
            for field, text in zip(struct_type.fields, texts, strict=True)
        )
    )


def encode_scope(metadata: TableMetadata, spec_id: int, partition: Record) -> Scope:
    """Return a partition as plans and staged records have it."""
    spec = metadata.specs()[spec_id]
    values = encode_partition(partition_type(metadata, spec), partition)
    return Scope(spec_id=spec_id, values=values, label=partition_path(metadata, spec, partition))


def decode_scope(metadata: TableMetadata, scope: Scope) -> Record:
    """Return the partition tuple of a plan's or a staged record's scope."""
    return decode_partition(partition_type(metadata, metadata.specs()[scope.spec_id]), scope.values)


def _values(partition: Record) -> list[Any]:
    """Return the values; NaN, which has many bit patterns, is always the same one."""
    values = (partition[position] for position in range(len(partition)))
    return [math.nan if isinstance(value, float) and math.isnan(value) else value for value in values]


def _newest_first(metadata: TableMetadata) -> list[Schema]:
    current = metadata.current_schema_id
    return sorted(metadata.schemas, key=lambda schema: (schema.schema_id != current, -schema.schema_id))


def _result_type(metadata: TableMetadata, spec: PartitionSpec, field: PartitionField) -> IcebergType:
    if (source := newest_type(metadata, field.source_id)) is not None:
        return field.transform.result_type(source)
    if isinstance(field.transform, (IdentityTransform, TruncateTransform)):
        raise Corrupt(
            f"Partition field {field.name!r} of spec {spec.spec_id} is made from column {field.source_id}, "
            "which is in no schema of the table."
        )
    # Void is always null; the result types of the other transforms do not depend on the source.
    return field.transform.result_type(IntegerType())
