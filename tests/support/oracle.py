"""What a table's rows are, worked out from the specification alone, one row at a time: slow, plain, and nobody's code.

It reads manifests with the project's reader (judged elsewhere) and everything below them on its own.
"""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import NestedField, StructType

from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests

Row = tuple[Any, ...]

_ROW_ID, _LAST_UPDATED = 2147483540, 2147483539


def live_files(table: Table, branch: str = "main") -> list[LiveFile]:
    """Every live file of a branch's head."""
    snapshot = table.metadata.snapshot_by_name(branch)
    return list(read_manifests(table.io, read_manifest_list(table.io, snapshot))) if snapshot else []


def rows(table: Table, branch: str = "main", *, lineage: bool = False) -> Counter[Row]:
    """The rows of a branch's head as a multiset; floats by bits, so that NaN equals NaN and -0.0 is not 0.0.

    With ``lineage`` each ends with its row id and the sequence number of its last update (spec, Row Lineage).
    """
    files = live_files(table, branch)
    names = [field.field_id for field in table.schema().fields]
    found: Counter[Row] = Counter()
    for file in files:
        if file.content == DataFileContent.DATA:
            columns = _Columns(table, file)
            gone = _deleted(table, file, files, columns)
            found.update(
                (
                    *(columns.value(field_id, position) for field_id in names),
                    *(columns.lineage(file, position) if lineage else ()),
                )
                for position in range(file.record_count)
                if position not in gone
            )
    return found


def _deleted(table: Table, file: LiveFile, files: list[LiveFile], columns: _Columns) -> set[int]:
    gone: set[int] = set()
    vectors = [f for f in files if f.is_vector and f.referenced_data_file == file.path]
    for vector in vectors:
        gone |= _vector(table, vector, file.path)
    for delete in files:
        if delete.content == DataFileContent.POSITION_DELETES and not delete.is_vector and not vectors:
            if delete.partition_key == file.partition_key and delete.sequence_number >= file.sequence_number:
                read = _read(table, delete.path).select(["file_path", "pos"]).to_pylist()
                gone |= {row["pos"] for row in read if row["file_path"] == file.path}
        elif delete.content == DataFileContent.EQUALITY_DELETES:
            spec = table.specs()[delete.spec_id]
            is_global = all(isinstance(field.transform, VoidTransform) for field in spec.fields)
            if delete.sequence_number > file.sequence_number and (
                is_global or delete.partition_key == file.partition_key
            ):
                keys = set(_keys(table, delete))
                gone |= {
                    position
                    for position in range(file.record_count)
                    if tuple(columns.value(field_id, position) for field_id in delete.equality_ids) in keys
                }
    return gone


def _keys(table: Table, delete: LiveFile) -> Iterator[Row]:
    columns = _Columns(table, delete)
    for position in range(columns.rows):  # foreign manifests count wrong
        yield tuple(columns.value(field_id, position) for field_id in delete.equality_ids)


def _vector(table: Table, vector: LiveFile, path: str) -> set[int]:
    with table.io.new_input(vector.path).open() as stream:
        puffin = PuffinFile(stream.read())
    # By name: a table that was moved keeps the old paths in its Puffin files.
    name = path.rpartition("/")[2]
    vectors = deletion_vectors_from_puffin_file(puffin)
    found = [v for v in vectors if v.referenced_data_file.rpartition("/")[2] == name]
    assert len(found) == 1
    return set(found[0].to_vector().to_pylist())


class _Columns:
    """A file's columns by field id, in the table's types, with what the file lacks filled in."""

    def __init__(self, table: Table, file: LiveFile) -> None:
        self._table = table
        self._arrow = _read(table, file.path)
        self._fields = dict(_fields(table))
        self._constants = {
            field.source_id: file.partition[index]
            for index, field in enumerate(table.specs()[file.spec_id].fields)
            if isinstance(field.transform, IdentityTransform)
        }
        self._read: dict[int, list[Any]] = {}
        self.rows = self._arrow.num_rows

    def value(self, field_id: int, position: int) -> Any:
        if field_id not in self._read:
            self._read[field_id] = self._column(field_id)
        return self._read[field_id][position]

    def lineage(self, file: LiveFile, position: int) -> tuple[int | None, int | None]:
        """A row's id and the sequence number of its last update: stored, else inherited, else none."""
        stored: list[int | None] = []
        for field_id in (_ROW_ID, _LAST_UPDATED):
            array = _find(self._arrow, field_id)
            stored.append(None if array is None else array[position].as_py())
        row_id, updated = stored
        if file.first_row_id is not None:
            row_id = file.first_row_id + position if row_id is None else row_id
            updated = file.sequence_number if updated is None else updated
        return row_id, updated

    def _column(self, field_id: int) -> list[Any]:
        field = self._fields[field_id]
        arrow_type = schema_to_pyarrow(Schema(field)).field(0).type
        array = _find(self._arrow, field_id)
        if array is None and not _has_ids(self._arrow.schema):
            array = self._arrow[field.name] if field.name in self._arrow.column_names else None
        if array is None:
            default = self._constants.get(field_id, field.initial_default)
            if isinstance(default, int) and pa.types.is_temporal(arrow_type):
                size = pa.int32() if pa.types.is_date32(arrow_type) else pa.int64()
                array = pa.array([default] * len(self._arrow), size).cast(arrow_type)
            else:
                array = pa.array([default] * len(self._arrow), arrow_type)
        if isinstance(field.field_type, StructType):
            return [_plain(value) for value in array.to_pylist()]
        return [_plain(value) for value in pa.chunked_array(array).cast(arrow_type).to_pylist()]


def _fields(table: Table) -> Iterator[tuple[int, NestedField]]:
    for schema in sorted(table.metadata.schemas, key=lambda s: s.schema_id):
        for field_id in schema.field_ids:
            yield field_id, schema.find_field(field_id)
    for field_id in table.schema().field_ids:
        yield field_id, table.schema().find_field(field_id)


def _find(table: pa.Table, field_id: int) -> pa.ChunkedArray | None:
    for field, column in zip(table.schema, table.columns, strict=True):
        if (field.metadata or {}).get(b"PARQUET:field_id") == str(field_id).encode():
            return column
        if pa.types.is_struct(field.type) and len(column):
            combined = column.combine_chunks()
            combined = combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
            inner = pa.Table.from_arrays(combined.flatten(), schema=pa.schema(list(field.type)))
            if (found := _find(inner, field_id)) is not None:
                return found
    return None


def _has_ids(schema: pa.Schema) -> bool:
    return any(b"PARQUET:field_id" in (field.metadata or {}) for field in schema)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in value.items())
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value


def _read(table: Table, path: str) -> pa.Table:
    with table.io.new_input(path).open() as stream:
        return pq.read_table(stream)
