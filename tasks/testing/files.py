"""Parquet files as partitioned writers make them: rows split by partition, with field ids and full metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import BinaryType, PrimitiveType, UUIDType

from workers.arrow.transforms import apply_transform


def split_by_partition(rows: pa.Table, spec: PartitionSpec, schema: Schema) -> list[tuple[Record, pa.Table]]:
    """Return the rows of each partition in their order, partitions in the order of their first rows.

    Rows have the source columns in the Arrow types of the table's current schema; void fields need none. Partition
    tuples are as the manifest reader gives them.
    """
    if not spec.fields or not rows.num_rows:
        return [(Record(), rows)] if not spec.fields else []
    values = [_values(rows, field, schema) for field in spec.fields]
    names = [f"p{position}" for position in range(len(values))]
    keyed = pa.table([*values, pa.array(np.arange(rows.num_rows))], [*names, "row"])
    groups = keyed.group_by(names, use_threads=False).aggregate([("row", "list")])
    columns = [_internal(groups[name], field, schema) for name, field in zip(names, spec.fields, strict=True)]
    return [
        (Record(*partition), rows.take(indexes.values))
        for partition, indexes in zip(zip(*columns, strict=True), groups["row_list"], strict=True)
    ]


def _values(rows: pa.Table, field: PartitionField, schema: Schema) -> pa.Array:
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows, pa.int32())
    column = _column(rows, schema.find_column_name(field.source_id) or "")
    source = schema.find_type(field.source_id)
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if isinstance(source, BinaryType):  # the transforms do not know Arrow's large binary
        column = column.cast(pa.binary())
    try:
        return field.transform.pyarrow_transform(source)(column)
    except NotInstalledError:  # without iceberg-rust, which tests want, since it shares no code with the workers
        assert isinstance(source, PrimitiveType)
        return apply_transform(column, source, field.transform)


def _column(rows: pa.Table, path: str) -> pa.Array:
    """Return the column of a dotted path, in one chunk."""
    first, *rest = path.split(".")
    column = pc.struct_field(rows[first], rest) if rest else rows[first]
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _internal(column: pa.ChunkedArray, field: PartitionField, schema: Schema) -> list[Any]:
    """Return values in Iceberg's internal form: dates and times are numbers."""
    values = column.combine_chunks()
    if pa.types.is_date32(values.type) or pa.types.is_time(values.type) or pa.types.is_timestamp(values.type):
        values = values.view(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    plain: list[Any] = values.to_pylist()
    if isinstance(field.transform, IdentityTransform) and isinstance(schema.find_type(field.source_id), UUIDType):
        return [None if value is None else UUID(bytes=value) for value in plain]
    return plain


def project(schema: Schema, rows: pa.Table, paths: Iterable[str] | None = None) -> tuple[Schema, pa.Table]:
    """Return some columns of the rows, matched by name, in the Arrow types of a schema, and their part of the schema.

    The dotted paths are in the order of their columns at the top level; by default, all columns are returned.
    """
    selection = list(rows.column_names if paths is None else paths)
    prefixes = tuple(f"{path}." for path in selection)
    tops = list(dict.fromkeys(path.split(".")[0] for path in selection))
    leaves = [
        leaf
        for top in tops
        for leaf in _leaves(rows.schema.field(top), top)
        if leaf in selection or leaf.startswith(prefixes)
    ]
    by_name = {field.name: field for field in schema.select(*leaves).fields}
    selected = Schema(*(by_name[top] for top in tops), schema_id=schema.schema_id)
    return selected, rows.select(tops).cast(schema_to_pyarrow(selected))


def write_parquet(
    io: FileIO,
    path: str,
    schema: Schema,
    rows: pa.Table,
    properties: Mapping[str, str],
    *,
    field_ids: bool = True,
    row_group_size: int | None = None,
) -> dict[str, Any]:
    """Write rows as :func:`project` returns them; return the fields of the manifest entry by their names in the spec.

    The table properties ``write.metadata.metrics.*`` choose the metrics. Without field ids, readers use the table's
    name mapping.
    """
    arrow_schema = schema_to_pyarrow(schema, include_field_ids=field_ids)
    output = io.new_output(path)
    with (
        output.create(overwrite=False) as stream,
        pq.ParquetWriter(stream, arrow_schema, compression="zstd", store_decimal_as_integer=True) as writer,
    ):
        writer.write_table(rows.cast(arrow_schema), row_group_size=row_group_size)
    with io.new_input(path).open() as written:
        footer = pq.read_metadata(written)
    statistics = data_file_statistics_from_parquet_metadata(
        footer, compute_statistics_plan(schema, dict(properties)), parquet_path_to_id_mapping(schema)
    )
    return {
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "file_size_in_bytes": len(io.new_input(path)),
        **statistics.to_serialized_dict(),
    }


def _leaves(field: pa.Field, path: str) -> Iterator[str]:
    if pa.types.is_struct(field.type):
        for child in field.type:
            yield from _leaves(child, f"{path}.{child.name}")
    else:
        yield path
