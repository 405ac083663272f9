"""The rewriting of data files in plain Python, one row at a time: what commits are tested with, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from producer.iceberg.partitions import encode_partition
from producer.model.plan import Scope
from producer.model.staged import StagedDataFile
from tasks.testing.files import split_by_partition, write_parquet
from tests.support import plainengine
from workers.formats.output_files import Journal
from workers.model.delete_set import ContentFile
from workers.model.units import RewriteResult, RewriteUnit
from workers.operations.rewrite import number_scopes

_LINEAGE = (
    NestedField(2147483540, "_row_id", LongType(), required=False),
    NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False),
)


def rewrite(
    unit: RewriteUnit,
    io: FileIO,
    session: object = None,
    budget: object = None,
    scratch: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RewriteResult:
    """Does what ``workers.operations.rewrite.rewrite`` does, for top-level columns.

    It writes one file for each partition, as rows come.
    """
    found = plainengine.matched(unit.deletes, io)
    named = {file.path: plainengine.named(io, file.path) for file in unit.deletes.positions}
    before = {file.index: plainengine.deleted_before(unit.deletes, file, named, io) for file in unit.inputs}
    schema = Schema(*unit.schema.fields, *(_LINEAGE if unit.lineage else ()), schema_id=unit.schema.schema_id)
    parts: dict[Scope, list[pa.Table]] = defaultdict(list)
    deleted = 0
    for file in unit.inputs:
        gone = found[file.index] | before[file.index]
        deleted += len(gone)
        kept = [position for position in range(file.record_count) if position not in gone]
        for partition, rows in _routed(unit, file, _rows(unit, file, schema, io).take(pa.array(kept, pa.int64()))):
            parts[partition].append(rows)
    files = [
        (partition, _write(unit, io, number, partition, pa.concat_tables(tables), schema))
        for number, (partition, tables) in enumerate((p, t) for p, t in parts.items() if sum(map(len, t)))
    ]
    if progress is not None:
        progress(len(unit.inputs), len(unit.inputs))
    scopes, written = number_scopes(files)
    return RewriteResult(
        scopes=scopes,
        files=written,
        read_rows=sum(file.record_count for file in unit.inputs),
        deleted_rows=deleted,
        named=plainengine.named_by(unit.deletes, named),
    )


def _rows(unit: RewriteUnit, file: ContentFile, schema: Schema, io: FileIO) -> pa.Table:
    with io.new_input(file.path).open() as stream:
        read = pq.read_table(stream)
    ids = {int((field.metadata or {}).get(b"PARQUET:field_id", 0)): index for index, field in enumerate(read.schema)}
    columns = []
    for field in schema.fields:
        stored = read.column(ids[field.field_id]).to_pylist() if field.field_id in ids else [None] * len(read)
        if field in _LINEAGE:
            stored = [_inherited(file, field, position, value) for position, value in enumerate(stored)]
        elif field.field_id not in ids:
            stored = [file.constants.get(field.field_id, field.initial_default)] * len(read)
        columns.append(stored)
    arrow = schema_to_pyarrow(schema)
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], schema=arrow)


def _inherited(file: ContentFile, field: NestedField, position: int, stored: int | None) -> int | None:
    if stored is not None or file.first_row_id is None:
        return stored
    return file.first_row_id + position if field is _LINEAGE[0] else file.sequence_number


def _routed(unit: RewriteUnit, file: ContentFile, rows: pa.Table) -> Iterable[tuple[Scope, pa.Table]]:
    if (partition := unit.scopes[file.scope]) is not None:
        yield partition, rows
        return
    for record, part in split_by_partition(rows, unit.spec, unit.schema):
        types = StructType(
            *(
                NestedField(f.field_id, f.name, f.transform.result_type(unit.schema.find_type(f.source_id)))
                for f in unit.spec.fields
            )
        )
        yield (
            Scope(
                spec_id=unit.spec.spec_id,
                values=tuple(encode_partition(types, record)),
                label=unit.spec.partition_to_path(record, unit.schema),
            ),
            part,
        )


def _write(
    unit: RewriteUnit, io: FileIO, number: int, partition: Scope, rows: pa.Table, schema: Schema
) -> StagedDataFile:
    path = unit.location.new_data_location(f"{unit.name}-{number}.parquet", partition if partition.label else None)  # type: ignore[arg-type]
    Journal(io, unit.journal).note(0, number, path)
    written: dict[str, Any] = write_parquet(io, path, schema, rows, unit.properties)
    return StagedDataFile(
        scope=0,
        path=path,
        size=written["file_size_in_bytes"],
        records=written["record_count"],
        split_offsets=tuple(written["split_offsets"] or ()),
        **{name: dict(written[name] or {}) for name in _COUNTS},
        **{name: {id_: bound.hex() for id_, bound in (written[name] or {}).items()} for name in _BOUNDS},
    )


_COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
_BOUNDS = ("lower_bounds", "upper_bounds")
