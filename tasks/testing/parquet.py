"""Parquet files with field ids and full metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema


def project(schema: Schema, rows: pa.Table, paths: Iterable[str] | None = None) -> tuple[Schema, pa.Table]:
    """Some columns of rows in the Arrow types of a schema, and the part of the schema they are.

    Columns are matched by name.

    Args:
        paths: dotted paths of the columns to keep, in their order at the top level; all that the rows have by default.
    """
    kept = list(rows.column_names if paths is None else paths)
    tops = list(dict.fromkeys(path.split(".")[0] for path in kept))
    leaves = [leaf for top in tops for leaf in _leaves(rows.schema.field(top), top) if _is_kept(leaf, kept)]
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
    """Write one file; returns what its manifest entry says of it, by the names in the spec.

    Args:
        rows: as :func:`project` gives them, with the schema.
        properties: the table's, for its ``write.metadata.metrics.*``.
        field_ids: without them readers go by the table's name mapping.
        row_group_size: rows; by default all go into one group as far as Arrow lets them.
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


def _is_kept(leaf: str, kept: list[str]) -> bool:
    return any(leaf == path or leaf.startswith(f"{path}.") for path in kept)
