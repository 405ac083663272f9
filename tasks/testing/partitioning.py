"""Rows split by partition with Arrow, as a partitioned writer does."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, IcebergType, PrimitiveType, UUIDType

from workers.arrow.transforms import apply_transform


def split_by_partition(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> list[tuple[Record, pa.Table]]:
    """Rows of each partition in the order they came, partitions in the order of their first rows.

    Args:
        rows: with the columns that the spec is made from, in the Arrow types of the schema.
        schema: the table's current schema; all source columns are in it, except those of void fields.

    Returns:
        Partition tuples as the manifest reader gives them, each with its rows.
    """
    if not spec.fields or not rows.num_rows:
        return [(Record(), rows)] if not spec.fields else []
    values = [_values(rows, field, schema) for field in spec.fields]
    names = [f"p{position}" for position in range(len(values))]
    keyed = pa.table([*values, pa.array(np.arange(rows.num_rows))], [*names, "row"])
    groups = keyed.group_by(names, use_threads=False).aggregate([("row", "list")])
    columns = [
        _internal(groups[name], _result_type(field, schema)) for name, field in zip(names, spec.fields, strict=True)
    ]
    return [
        (Record(*partition), rows.take(indexes.values))
        for partition, indexes in zip(zip(*columns, strict=True), groups["row_list"], strict=True)
    ]


def _values(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.Array:
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows, pa.int32())
    column = _column(rows, schema.find_column_name(field.source_id) or "")
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if isinstance(schema.find_type(field.source_id), BinaryType):
        # The transforms do not know Arrow's large binary.
        column = column.cast(pa.binary())
    source = schema.find_type(field.source_id)
    try:
        return field.transform.pyarrow_transform(source)(column)
    except NotInstalledError:  # without iceberg-rust, which tests want, since it shares no code with the workers
        assert isinstance(source, PrimitiveType)
        return apply_transform(column, source, field.transform)


def _column(rows: pa.Table, path: str) -> pa.Array:
    """Column of a dotted path, in one chunk."""
    first, *rest = path.split(".")
    column = pc.struct_field(rows[first], rest) if rest else rows[first]
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _result_type(field: PartitionField, schema: Schema) -> IcebergType | None:
    return (
        None
        if isinstance(field.transform, VoidTransform)
        else field.transform.result_type(schema.find_type(field.source_id))
    )


def _internal(column: pa.ChunkedArray, result_type: IcebergType | None) -> list[Any]:
    """Values as Iceberg keeps them: dates and times are numbers."""
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if pa.types.is_date32(values.type) or pa.types.is_time(values.type) or pa.types.is_timestamp(values.type):
        values = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    plain: list[Any] = values.to_pylist()
    if isinstance(result_type, UUIDType):
        return [None if value is None else UUID(bytes=value) for value in plain]
    return plain
