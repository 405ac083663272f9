"""Partition values as text, on the wire and in paths. Producers and workers share this code.

Text is the single-value serialization in hexadecimal (spec, Appendix D), and None for null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, NestedField, PrimitiveType, UUIDType


def encode_value(type_: PrimitiveType, value: Any) -> str | None:
    """Return the text of a partition value."""
    return None if value is None else to_bytes(type_, value).hex()


def decode_value(type_: PrimitiveType, text: str | None) -> Any:
    """Return the value that :func:`encode_value` encoded, as manifests have it."""
    if text is None:
        return None
    data = bytes.fromhex(text)
    # PyIceberg's Avro reader returns uuid.UUID, but its single-value deserialization returns bytes.
    return UUID(bytes=data) if isinstance(type_, UUIDType) else from_bytes(type_, data)


def path_schema(spec: PartitionSpec, source_type: Callable[[int], IcebergType | None]) -> Schema:
    """Return the schema of a spec's source columns, for ``PartitionSpec.partition_to_path``.

    ``source_type`` returns the type of a source column by its id; None for one that was dropped, whose type does not
    matter to the path.
    """
    source_ids = dict.fromkeys(field.source_id for field in spec.fields)
    return Schema(
        *(NestedField(id_, f"source_{id_}", source_type(id_) or IntegerType(), required=False) for id_ in source_ids)
    )
