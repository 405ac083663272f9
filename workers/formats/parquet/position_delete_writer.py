"""Writing of position delete files (format v2) as Parquet (spec: Position Delete Files)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from producer.model.staged import StagedDeleteFile
from workers.arrow.schema import arrow_schema
from workers.formats.format_model import Positions
from workers.formats.parquet.data_file_writer import ParquetFileWriter
from workers.formats.parquet.write_properties import compression
from workers.formats.position_deletes import FILE_PATH_ID, POS_ID

_ROW_GROUP_ROWS: Final = 1_000_000
#: What a row group's paths take in memory at most, and its dictionary in the file, about.
_ROW_GROUP_PATHS: Final = 32 << 20
_ICEBERG_SCHEMA: Final = Schema(
    NestedField(FILE_PATH_ID, "file_path", StringType(), required=True, doc="Path of the data file of a deleted row"),
    NestedField(POS_ID, "pos", LongType(), required=True, doc="Position of a deleted row in its data file, from 0"),
)
_PATH, _POS = arrow_schema(_ICEBERG_SCHEMA)
# A path stands once in the dictionary for all of its rows, in memory as in the file.
_WRITE_SCHEMA: Final = pa.schema([_PATH.with_type(pa.dictionary(pa.int32(), pa.string())), _POS])
_METADATA: Final = {"delete-type": "position", "iceberg.schema": _ICEBERG_SCHEMA.model_dump_json()}


class ParquetPositionDeleteWriter(ParquetFileWriter):
    """Writes one new position delete file, sorted by path and position.

    Memory is bounded by one row group: a million rows, or 32 MB of paths. ``write.delete.parquet.*`` and then
    ``write.parquet.*`` choose the codec.
    """

    def __init__(self, io: FileIO, path: str, properties: Mapping[str, str]) -> None:
        super().__init__(io, path)
        self._codec, self._level = compression(properties, ("write.delete.parquet", "write.parquet"))
        # The next row group.
        self._buffer: list[tuple[str, Positions]] = []
        self._buffered = 0
        self._path_bytes = 0
        # All rows so far; the data files ascend.
        self._rows = 0
        self._targets: list[str] = []
        self._last_pos = -1
        self._lower_pos = int(np.iinfo(np.int64).max)
        self._upper_pos = -1

    def write(self, data_file: str, positions: Positions) -> None:
        """Add deleted rows of one data file; a file may come several times in a row, with higher positions each time.

        The array must not change until its row group is written.

        Raises:
            ValueError: paths do not ascend, or positions are negative, repeated or do not ascend.
        """
        self._check_open()
        if not positions.size:
            return
        first, last = int(positions[0]), int(positions[-1])
        last_path = self._targets[-1] if self._targets else ""
        if data_file < last_path:
            raise ValueError(f"{data_file} comes after {last_path}: paths must ascend")
        if first <= (self._last_pos if data_file == last_path else -1):
            raise ValueError(f"position {first} of {data_file} is negative or comes after {self._last_pos}")
        if not bool(np.all(positions[1:] > positions[:-1])):
            raise ValueError(f"the positions of {data_file} do not ascend")
        if data_file != last_path:
            self._targets.append(data_file)
        self._last_pos = last
        self._lower_pos = min(self._lower_pos, first)
        self._upper_pos = max(self._upper_pos, last)
        self._rows += positions.size
        while positions.size:
            taken = positions[: _ROW_GROUP_ROWS - self._buffered]
            self._path_bytes += len(data_file) if not self._buffer or self._buffer[-1][0] != data_file else 0
            self._buffer.append((data_file, taken))
            self._buffered += taken.size
            positions = positions[taken.size :]
            if self._buffered == _ROW_GROUP_ROWS or self._path_bytes >= _ROW_GROUP_PATHS:
                self._flush()

    def close(self, scope: int) -> StagedDeleteFile:
        """Finish the file and describe it; raise ValueError, and leave no file, if no row was written."""
        self._check_open()
        self._flush()
        size, (path_bytes, position_bytes), split_offsets = self._close_parquet(_METADATA)
        return StagedDeleteFile(
            path=self._path,
            size=size,
            records=self._rows,
            column_sizes={FILE_PATH_ID: path_bytes, POS_ID: position_bytes},
            # In full: a truncated path would make a delete of one file one of a whole partition.
            lower=(self._targets[0], self._lower_pos),
            upper=(self._targets[-1], self._upper_pos),
            split_offsets=split_offsets,
            scope=scope,
            targets=tuple(self._targets),
        )

    def _flush(self) -> None:
        """Write the buffered rows as one row group, if there are any."""
        if not self._buffered:
            return
        with self._discard_on_error():
            parquet = self._parquet or self._open_parquet(
                _WRITE_SCHEMA, compression=self._codec, compression_level=self._level, use_dictionary=["file_path"]
            )
            parquet.write_table(_table(self._buffer), row_group_size=_ROW_GROUP_ROWS)
        self._buffer, self._buffered, self._path_bytes = [], 0, 0


def _table(buffer: list[tuple[str, Positions]]) -> pa.Table:
    numbers = {path: number for number, path in enumerate(dict.fromkeys(path for path, _ in buffer))}
    indexes = np.array([numbers[path] for path, _ in buffer], np.int32)
    indexes = np.repeat(indexes, [positions.size for _, positions in buffer])
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(indexes), pa.array(list(numbers), pa.string())),
        pa.array(np.concatenate([positions for _, positions in buffer]), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=_WRITE_SCHEMA)
