"""Data files: Parquet files of a table's rows, with the metrics that Iceberg keeps of them."""

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
from workers.formats.metrics import Metrics
from workers.formats.metrics_modes import modes_of
from workers.formats.write_properties import Layout

#: Arrow would cut larger tables into several row groups.
_MOST_ROWS: Final = 1 << 26


class DataFileWriter:
    """Writes one new data file, row group by row group.

    The file appears with the first row group, and goes again when writing fails, and unless the ``with`` block ends
    well after ``close``. A file that exists is never overwritten. No more than the row group at hand is held.

    :param schema: what is written, columns of row lineage included; goes into the file.
    :param arrow_schema: the same as Arrow has it, with field ids at every depth.
    :param properties: table properties; :mod:`workers.formats.write_properties` and
        :mod:`workers.formats.metrics_modes` say which count.
    :param sorted_ids: columns that the table is sorted by; these keep bounds.
    :raises ValueError: when a property has a value that it cannot have.
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
        self._layout = Layout.of(properties, schema, columns)
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
        """Write a row group of these rows; none where there are no rows.

        :raises ValueError: when the table's columns are others than the file's, or a required one holds a null.
        """
        if self._closed:
            raise ValueError(f"{self._path} is closed")
        if table.num_rows > _MOST_ROWS:
            raise ValueError(f"{table.num_rows} rows are too many for a row group")
        if not table.num_rows:
            return
        try:
            stored = cast_uuids(table, self._schema)
            stream, parquet = self._opened(stored)
            parquet.write_table(stored, row_group_size=table.num_rows)
            self._metrics.add(table)
            self.rows += table.num_rows
            self.size = stream.tell() + self._filters
        except BaseException:
            self._discard()  # half a row group cannot be taken back
            raise

    def close(self) -> StagedDataFile:
        """Finish the file and describe it.

        :raises ValueError: when no row was written; then there is no file either.
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
        written = self._described(self._footer[0])
        self._complete = True
        return written

    def _described(self, footer: pq.FileMetaData) -> StagedDataFile:
        metrics = self._metrics.result(footer)
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
            split_offsets=tuple(_start(footer.row_group(index)) for index in range(footer.num_row_groups)),
        )

    def _opened(self, first: pa.Table) -> tuple[OutputStream, pq.ParquetWriter]:
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
                **self._layout.options(first),
            )
        self._filters += self._layout.filter_bytes(first.num_rows)
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


def _start(group: pq.RowGroupMetaData) -> int:
    column = group.column(0)
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)
