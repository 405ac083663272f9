"""Reading of position delete files (format v2): paths and row positions (spec: Position Delete Files)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from workers.arrow.schema import FIELD_ID
from workers.formats.format_model import format_model
from workers.runtime.errors import CorruptFile

FILE_PATH_ID: Final = 2147483546
POS_ID: Final = 2147483545

#: The schema of what :func:`read_position_deletes` yields.
BATCH_SCHEMA: Final = pa.schema(
    [pa.field("file_path", pa.string(), nullable=False), pa.field("pos", pa.int64(), nullable=False)]
)

_COLUMNS: Final = ((FILE_PATH_ID, "file_path"), (POS_ID, "pos"))
_BATCH_BYTES: Final = 8 << 20
_BATCH_ROWS: Final = 1 << 16


def read_position_deletes(io: FileIO, path: str) -> Iterator[pa.RecordBatch]:
    """Read a position delete file in batches of ``BATCH_SCHEMA``, in the order of the file.

    Columns are found by their field ids, and by their names in a file without ids. A stored ``row`` is not read. One
    batch is held at a time, however long paths are.

    Raises:
        CorruptFile: the file is missing, cannot be decoded, lacks a column, or has a null or a negative position.
        UnsupportedFile: it is not of its format.
    """
    with format_model(FileFormat.PARQUET).open(io, path) as file:
        columns = [_column(file.arrow_schema, field_id, name, path) for field_id, name in _COLUMNS]
        rows = 0
        for group in range(len(file.row_groups)):
            for batch in file.batches(group, columns, _BATCH_BYTES, _BATCH_ROWS):
                rows += len(batch)
                yield _checked(batch, columns, path)
        if rows != file.num_rows:
            raise CorruptFile(path, f"its footer promises {file.num_rows} rows, {rows} are there")


def _checked(batch: pa.RecordBatch, columns: list[str], path: str) -> pa.RecordBatch:
    # Arrow would make numbers of truth values.
    if not pa.types.is_integer(batch.column(columns[1]).type):
        raise CorruptFile(path, f"its positions are of type {batch.column(columns[1]).type}")
    try:
        arrays = [batch.column(name).cast(field.type) for name, field in zip(columns, BATCH_SCHEMA, strict=True)]
        deletes = pa.RecordBatch.from_arrays(arrays, schema=BATCH_SCHEMA)
        deletes.validate(full=True)
    except pa.ArrowException as error:
        raise CorruptFile(path, f"it holds no paths and positions: {error}") from error
    if any(array.null_count for array in arrays):
        raise CorruptFile(path, "a position delete has no path or no position")
    if len(deletes) and pc.min(deletes.column("pos")).as_py() < 0:
        raise CorruptFile(path, "a position delete has a negative position")
    return deletes


def _column(schema: pa.Schema, field_id: int, name: str, path: str) -> str:
    ids = {field.metadata[FIELD_ID]: field.name for field in schema if FIELD_ID in (field.metadata or {})}
    found = ids.get(str(field_id).encode()) if ids else (name if name in schema.names else None)
    if found is None:
        raise CorruptFile(path, f"it is no position delete file: it has no column {name} (field id {field_id})")
    return str(found)
