"""Partition tuples: their type under any spec, historic ones included, and their text on the wire and in paths."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias, cast
from uuid import UUID

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform, TruncateTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, IntegerType, NestedField, PrimitiveType, StructType, UUIDType

from producer.common.errors import Corrupt

#: The spec id and the values; two are equal exactly when both files lie in the same partition.
PartitionKey: TypeAlias = tuple[int, tuple[Any, ...]]


def is_unpartitioned(spec: PartitionSpec) -> bool:
    """Whether a delete written under this spec is global.

    A spec whose fields are all ``void`` counts as unpartitioned, as in the reference implementation.
    """
    return all(isinstance(field.transform, VoidTransform) for field in spec.fields)


def partition_key(spec_id: int, partition: Record) -> PartitionKey:
    """Hashable identity of a partition.

    Null equals null, NaN equals NaN whatever its bits, and -0.0 differs from 0.0.
    """
    return spec_id, tuple(
        struct.pack("<d", value) if isinstance(value, float) else value for value in _values(partition)
    )


def source_schema(metadata: TableMetadata, spec: PartitionSpec) -> Schema:
    """The newest schema that has all source columns of a spec: the current one, unless a column was dropped since."""
    sources = {field.source_id for field in spec.fields}
    candidates = (schema for schema in _newest_first(metadata) if sources <= schema.field_ids)
    return next(candidates, metadata.schema())


def partition_type(metadata: TableMetadata, spec: PartitionSpec) -> StructType:
    """Struct of a spec's partition tuples; every field is optional.

    The type of a source column that was dropped comes from the newest schema that still had it.

    Raises:
        Corrupt: when no schema of the table has the column and the transform alone does not tell the type.
    """
    return StructType(
        *(
            NestedField(field.field_id, field.name, _result_type(metadata, spec, field), required=False)
            for field in spec.fields
        )
    )


def partition_path(metadata: TableMetadata, spec: PartitionSpec, partition: Record) -> str:
    """Hive-style relative path of a partition, such as ``day=2026-01-31/region=eu``; empty without fields."""
    sources = {field.source_id: _source(metadata, field.source_id) for field in spec.fields}
    schema = Schema(
        *(
            NestedField(source_id, f"source_{source_id}", source or IntegerType(), required=False)
            for source_id, source in sources.items()
        )
    )
    return spec.partition_to_path(partition, schema)


def encode_partition(struct_type: StructType, partition: Record) -> list[str | None]:
    """Partition tuple as JSON-friendly text: each value's single-value serialization in hex, null as null.

    Lossless for every type: :func:`decode_partition` gives back the very values that the manifest reader gives
    (spec, Appendix D). Only the bits of NaN are not kept: all NaN have the same text.
    """
    return [
        None if value is None else to_bytes(cast(PrimitiveType, field.field_type), value).hex()
        for field, value in zip(struct_type.fields, _values(partition), strict=True)
    ]


def decode_partition(struct_type: StructType, values: Sequence[str | None]) -> Record:
    """Partition tuple out of what :func:`encode_partition` made of it under the same spec."""
    return Record(
        *(
            None if text is None else _decode(field.field_type, bytes.fromhex(text))
            for field, text in zip(struct_type.fields, values, strict=True)
        )
    )


def _decode(field_type: IcebergType, data: bytes) -> Any:
    # The Avro reader gives uuid.UUID, the single-value deserialization gives bytes.
    return UUID(bytes=data) if isinstance(field_type, UUIDType) else from_bytes(cast(PrimitiveType, field_type), data)


def _values(partition: Record) -> list[Any]:
    return [_with_one_nan(partition[position]) for position in range(len(partition))]


def _with_one_nan(value: Any) -> Any:
    """The value; for NaN, which has many bit patterns, always the same one."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value


def _newest_first(metadata: TableMetadata) -> list[Schema]:
    current = metadata.schema()
    others = [schema for schema in metadata.schemas if schema.schema_id != current.schema_id]
    return [current, *sorted(others, key=lambda schema: schema.schema_id, reverse=True)]


def _source(metadata: TableMetadata, source_id: int) -> IcebergType | None:
    for schema in _newest_first(metadata):
        if source_id in schema.field_ids:
            return schema.find_type(source_id)
    return None


def _result_type(metadata: TableMetadata, spec: PartitionSpec, field: PartitionField) -> IcebergType:
    if (source := _source(metadata, field.source_id)) is not None:
        return field.transform.result_type(source)
    if isinstance(field.transform, (IdentityTransform, TruncateTransform)):
        raise Corrupt(
            f"Partition field {field.name!r} of spec {spec.spec_id} is made from column {field.source_id}, "
            "which is in no schema of the table."
        )
    # Void is always null; what the other transforms give does not depend on what they are made from.
    return field.transform.result_type(IntegerType())
