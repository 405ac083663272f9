"""Writing of position delete files (format v2) as Parquet (spec: Position Delete Files)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from producer.model.staged import StagedDeleteFile
from workers.arrow.schema import FIELD_ID
from workers.formats.format_model import Positions
from workers.formats.parquet.file import split_offset
from workers.formats.parquet.write_properties import delete_compression
from workers.formats.position_deletes import FILE_PATH_ID, POS_ID

_ROW_GROUP_ROWS: Final = 1_000_000
#: What a row group's paths take in memory at most, and its dictionary in the file, about.
_ROW_GROUP_PATHS: Final = 32 << 20
_ICEBERG_SCHEMA: Final = Schema(
    NestedField(FILE_PATH_ID, "file_path", StringType(), required=True, doc="Path of the data file of a deleted row"),
    NestedField(POS_ID, "pos", LongType(), required=True, doc="Position of a deleted row in its data file, from 0"),
)
# A path stands once in the dictionary for all of its rows, in memory as in the file.
_WRITE_SCHEMA: Final = pa.schema(
    [
        pa.field(
            "file_path",
            pa.dictionary(pa.int32(), pa.string()),
            nullable=False,
            metadata={FIELD_ID: str(FILE_PATH_ID)},
        ),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POS_ID)}),
    ]
)
_METADATA: Final = {"delete-type": "position", "iceberg.schema": _ICEBERG_SCHEMA.model_dump_json()}


class ParquetPositionDeleteWriter:
    """Writes one new position delete file, sorted by path and position.

    The file is created with the first row group. It is deleted unless the ``with`` block ends without an error after
    ``close``. An existing file is never overwritten. Memory is bounded by one row group: a million rows, or 32 MB of
    paths.

    Args:
        io: The table's file access.
        path: The file.
        properties: Table properties; ``write.delete.parquet.*`` and then ``write.parquet.*`` choose the codec.

    Raises:
        ValueError: the properties name a codec or a level that Parquet does not have.
    """

    def __init__(self, io: FileIO, path: str, properties: Mapping[str, str]) -> None:
        self._io = io
        self._path = path
        self._codec, self._level = delete_compression(properties)
        self._stream: OutputStream | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []
        self._closed = False
        self._complete = False
        # What waits for its row group.
        self._buffer: list[tuple[str, Positions]] = []
        self._buffered = 0
        self._path_bytes = 0
        # What was added so far.
        self._rows = 0
        self._first_path: str | None = None
        self._last_path = ""
        self._last_pos = -1
        self._targets: list[str] = []
        self._lower_pos = -1
        self._upper_pos = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None or not self._complete:
            self._discard()

    def write(self, data_file: str, positions: Positions) -> None:
        """Add deleted rows of one data file; a file may come several times in a row, with higher positions each time.

        The array is kept until its row group is written and must not change meanwhile.

        Raises:
            ValueError: paths do not ascend, or positions are negative, repeated or do not ascend.
        """
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if not positions.size:
            return
        first, last = int(positions[0]), int(positions[-1])
        if data_file < self._last_path:
            raise ValueError(f"{data_file} comes after {self._last_path}: paths must ascend")
        if first <= (self._last_pos if data_file == self._last_path else -1):
            raise ValueError(f"position {first} of {data_file} is negative or comes after {self._last_pos}")
        if not bool(np.all(positions[1:] > positions[:-1])):
            raise ValueError(f"the positions of {data_file} do not ascend")
        if self._first_path is None:
            self._first_path, self._lower_pos = data_file, first
        if data_file != self._last_path:
            self._targets.append(data_file)
        self._last_path, self._last_pos = data_file, last
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
        """Finish the file and describe it.

        Args:
            scope: The unit's scope that the data files lie in.

        Raises:
            ValueError: no row was written; then there is no file either.
        """
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if self._first_path is None:
            raise ValueError(f"{self._path} would have no rows")
        try:
            size = self._finish()
        except BaseException:
            self._discard()
            raise
        footer = self._footer[0]
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        staged = StagedDeleteFile(
            path=self._path,
            size=size,
            records=self._rows,
            column_sizes={
                FILE_PATH_ID: sum(group.column(0).total_compressed_size for group in groups),
                POS_ID: sum(group.column(1).total_compressed_size for group in groups),
            },
            # In full: a truncated path would make a delete of one file one of a whole partition.
            lower=(self._first_path, self._lower_pos),
            upper=(self._last_path, self._upper_pos),
            split_offsets=tuple(split_offset(group) for group in groups),
            scope=scope,
            targets=tuple(self._targets),
        )
        self._complete = True
        return staged

    def _flush(self) -> tuple[OutputStream, pq.ParquetWriter]:
        """Write the buffered rows as one row group."""
        if self._stream is None:
            self._stream = self._io.new_output(self._path).create(overwrite=False)
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._stream,
                _WRITE_SCHEMA,
                compression=self._codec,
                compression_level=self._level,
                use_dictionary=["file_path"],
                write_page_checksum=True,
                store_schema=False,
                metadata_collector=self._footer,
            )
        if self._buffered:
            self._parquet.write_table(_table(self._buffer), row_group_size=_ROW_GROUP_ROWS)
            self._buffer, self._buffered, self._path_bytes = [], 0, 0
        return self._stream, self._parquet

    def _finish(self) -> int:
        """Write what is left and the footer; return the size of the file in bytes."""
        stream, parquet = self._flush()
        self._closed = True
        parquet.add_key_value_metadata(_METADATA)
        parquet.close()
        size = stream.tell()
        stream.close()
        return size

    def _discard(self) -> None:
        """Remove what was written; the error that led here matters more than one from removing."""
        self._closed = True
        self._buffer, self._buffered = [], 0
        if self._parquet is not None:
            with contextlib.suppress(Exception):
                self._parquet.close()
        if self._stream is not None:
            with contextlib.suppress(Exception):
                self._stream.close()
            with contextlib.suppress(Exception):
                self._io.delete(self._path)


def _table(buffer: list[tuple[str, Positions]]) -> pa.Table:
    paths: list[str] = []
    counts: list[int] = []
    for path, positions in buffer:
        if paths and paths[-1] == path:
            counts[-1] += positions.size
        else:
            paths.append(path)
            counts.append(positions.size)
    indices = np.repeat(np.arange(len(paths), dtype=np.int32), counts)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(indices), pa.array(paths, pa.string())),
        pa.array(np.concatenate([positions for _, positions in buffer]), pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=_WRITE_SCHEMA)
