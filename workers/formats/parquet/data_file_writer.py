"""Parquet data files, with the metrics that Iceberg keeps of them."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.schema import Schema

from producer.model.staged import StagedDataFile
from workers.arrow.schema import cast_uuids, column_descriptors, with_uuid_types
from workers.formats.metrics import Metrics, modes_of
from workers.formats.parquet.file import split_offset
from workers.formats.parquet.write_properties import WriteProperties

#: Arrow would cut larger tables into several row groups.
_MAX_ROWS: Final = 1 << 26


class ParquetDataFileWriter:
    """Writes one new data file, row group by row group.

    The file is created with the first row group. It is deleted when writing fails, and unless the ``with`` block ends
    without an error after ``close``. An existing file is never overwritten. One row group is held in memory.

    Args:
        io: The table's file access.
        path: The file.
        schema: What is written, columns of row lineage included; goes into the file.
        arrow_schema: The same in Arrow, with field ids at every depth.
        properties: Table properties; :mod:`workers.formats.parquet.write_properties` and
            :mod:`workers.formats.metrics` say which count.
        sorted_ids: Columns that the table is sorted by, which keep bounds.

    Raises:
        ValueError: a property has a value that it cannot have.
    """

    def __init__(
        self,
        io: FileIO,
        path: str,
        schema: Schema,
        arrow_schema: pa.Schema,
        properties: Mapping[str, str],
        sorted_ids: Collection[int] = (),
    ) -> None:
        self._io = io
        self._path = path
        self._iceberg = schema
        self._schema = with_uuid_types(arrow_schema, schema)
        columns = column_descriptors(arrow_schema)
        self._write_properties = WriteProperties.of(properties, schema, columns)
        self._metrics = Metrics(schema, columns, modes_of(schema, properties, sorted_ids))
        self._stream: OutputStream | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []
        self._filters = 0
        self._closed = False
        self._complete = False
        #: Rows written so far.
        self.rows = 0
        #: Bytes written so far, Bloom filters included, which Parquet has at the end; the size of the file after it.
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None or not self._complete:
            self._discard()

    def write(self, table: pa.Table) -> None:
        """Write these rows as one row group, if there are any.

        Raises:
            ValueError: the table has other columns than the file, or a required one holds a null.
        """
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if table.num_rows > _MAX_ROWS:
            raise ValueError(f"{table.num_rows} rows are too many for a row group")
        if not table.num_rows:
            return
        try:
            stored = cast_uuids(table, self._schema)
            stream, parquet = self._open(stored)
            parquet.write_table(stored, row_group_size=table.num_rows)
            self._metrics.add(table)
            self.rows += table.num_rows
            self.size = stream.tell() + self._filters
        except BaseException:
            self._discard()  # half a row group cannot be taken back
            raise

    def close(self) -> StagedDataFile:
        """Finish the file and describe it.

        Raises:
            ValueError: no row was written; then there is no file either.
        """
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if self._stream is None or self._parquet is None:
            raise ValueError(f"{self._path} would have no rows")
        try:
            self._closed = True
            self._parquet.add_key_value_metadata({"iceberg.schema": self._iceberg.model_dump_json()})
            self._parquet.close()
            self.size = self._stream.tell()
            self._stream.close()
        except BaseException:
            self._discard()
            raise
        written = self._describe(self._footer[0])
        self._complete = True
        return written

    def _describe(self, footer: pq.FileMetaData) -> StagedDataFile:
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        columns = range(footer.num_columns)
        sizes = [sum(group.column(index).total_compressed_size for group in groups) for index in columns]
        metrics = self._metrics.result(sizes)
        return StagedDataFile(
            path=self._path,
            size=self.size,
            records=self.rows,
            scope=0,  # a number once all files of the unit are known
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds={field_id: bound.hex() for field_id, bound in metrics.lower_bounds.items()},
            upper_bounds={field_id: bound.hex() for field_id, bound in metrics.upper_bounds.items()},
            split_offsets=tuple(split_offset(group) for group in groups),
        )

    def _open(self, first: pa.Table) -> tuple[OutputStream, pq.ParquetWriter]:
        if self._stream is None:
            self._stream = self._io.new_output(self._path).create(overwrite=False)
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._stream,
                self._schema,
                store_schema=False,
                store_decimal_as_integer=True,
                write_page_checksum=True,
                write_page_index=True,
                metadata_collector=self._footer,
                **self._write_properties.options(first),
            )
        self._filters += self._write_properties.filter_bytes(first.num_rows)
        return self._stream, self._parquet

    def _discard(self) -> None:
        """Remove what was written; the error that led here matters more than one from removing."""
        self._closed = True
        if self._parquet is not None:
            with contextlib.suppress(Exception):
                self._parquet.close()
        if self._stream is not None:
            with contextlib.suppress(Exception):
                self._stream.close()
            with contextlib.suppress(Exception):
                self._io.delete(self._path)
