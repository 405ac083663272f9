"""Parquet data files, with the metrics that Iceberg keeps of them, and what all writers of Parquet files share."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from producer.model.staged import StagedDataFile
from workers.arrow.fields import stored_columns
from workers.arrow.schema import arrow_schema, cast_uuids
from workers.formats.format_model import NewFile
from workers.formats.metrics import Metrics, modes_of
from workers.formats.parquet.write_properties import WriteProperties

#: Arrow would cut larger tables into several row groups.
_MAX_ROWS: Final = 1 << 26


class ParquetFileWriter(NewFile):
    """Writes one new Parquet file."""

    def __init__(self, io: FileIO, path: str) -> None:
        super().__init__(io, path)
        self._parquet: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []

    def _open_parquet(self, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
        self._parquet = pq.ParquetWriter(
            self._output(),
            schema,
            store_schema=False,
            write_page_checksum=True,
            metadata_collector=self._footer,
            **options,
        )
        return self._parquet

    def _close_parquet(self, metadata: Mapping[str, str]) -> tuple[int, list[int], tuple[int, ...]]:
        """Complete the file; return its size, the bytes of each column, and where row groups begin.

        Raises:
            ValueError: no row was written; then there is no file either.
        """
        self._check_open()
        if self._parquet is None or self._stream is None:
            raise ValueError(f"{self._path} would have no rows")
        with self._discard_on_error():
            self._closed = True
            self._parquet.add_key_value_metadata(metadata)
            self._parquet.close()
            size = self._stream.tell()
            self._stream.close()
        (footer,) = self._footer
        groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
        columns = range(footer.num_columns)
        column_sizes = [sum(group.column(index).total_compressed_size for group in groups) for index in columns]
        self._complete = True
        return size, column_sizes, tuple(_split_offset(group) for group in groups)

    def _discard(self) -> None:
        if self._parquet is not None:
            with suppress(Exception):
                self._parquet.close()
        super()._discard()


class ParquetDataFileWriter(ParquetFileWriter):
    """Writes one new data file, row group by row group; see :meth:`workers.formats.format_model.FormatModel.create`.

    One row group is held in memory. :mod:`workers.formats.parquet.write_properties` and :mod:`workers.formats.metrics`
    say which table properties count.
    """

    def __init__(
        self, io: FileIO, path: str, schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int] = ()
    ) -> None:
        super().__init__(io, path)
        self._iceberg = schema
        self._schema = arrow_schema(schema, uuid_type=pa.uuid())
        columns = stored_columns(self._schema)
        self._write_properties = WriteProperties.of(properties, schema, columns)
        self._metrics = Metrics(schema, columns, modes_of(schema, properties, sorted_ids))
        self._filters = 0
        #: Bytes written so far, Bloom filters included, which Parquet has at the end; the size of the file after it.
        self.size = 0

    @property
    def rows(self) -> int:
        """Rows written so far."""
        return self._metrics.rows

    def write(self, table: pa.Table) -> None:
        """Write these rows as one row group, if there are any.

        Raises:
            ValueError: the table has other columns than the file, or a required one holds a null.
        """
        self._check_open()
        if table.num_rows > _MAX_ROWS:
            raise ValueError(f"{table.num_rows} rows are too many for a row group")
        if not table.num_rows:
            return
        with self._discard_on_error():  # half a row group cannot be taken back
            stored = cast_uuids(table, self._iceberg)
            parquet = self._parquet or self._open_parquet(
                self._schema,
                store_decimal_as_integer=True,
                write_page_index=True,
                **self._write_properties.options(stored),
            )
            self._filters += self._write_properties.filter_bytes(table.num_rows)
            parquet.write_table(stored, row_group_size=table.num_rows)
            self._metrics.add(table)
            self.size = self._output().tell() + self._filters

    def close(self) -> StagedDataFile:
        """Finish the file and describe it; raise ValueError, and leave no file, if no row was written."""
        schema = self._iceberg.model_dump_json()
        self.size, column_sizes, split_offsets = self._close_parquet({"iceberg.schema": schema})
        return self._metrics.describe(self._path, self.size, column_sizes, split_offsets)


def _split_offset(group: pq.RowGroupMetaData) -> int:
    """Return where a row group begins in its file."""
    column = group.column(0)
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)
