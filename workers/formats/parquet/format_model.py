"""Parquet, as the registry of formats finds it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from workers.formats.format_model import DataFile, FormatModel
from workers.formats.parquet.data_file_writer import ParquetDataFileWriter
from workers.formats.parquet.file import open_parquet
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter


class ParquetFormatModel:
    """Parquet as a :class:`workers.formats.format_model.FormatModel`."""

    extension: Final = "parquet"

    def open(self, io: FileIO, path: str, *, timestamp_unit: str = "us") -> AbstractContextManager[DataFile]:
        """Open a file; ``timestamp_unit`` is the unit of INT96 timestamps."""
        return open_parquet(io, path, int96_unit=timestamp_unit)

    def create(
        self,
        io: FileIO,
        path: str,
        schema: Schema,
        arrow_schema: pa.Schema,
        properties: Mapping[str, str],
        sorted_ids: Collection[int] = (),
    ) -> ParquetDataFileWriter:
        """Return the writer of a new data file."""
        return ParquetDataFileWriter(io, path, schema, arrow_schema, properties, sorted_ids)

    def create_position_deletes(
        self, io: FileIO, path: str, properties: Mapping[str, str]
    ) -> ParquetPositionDeleteWriter:
        """Return the writer of a new position delete file."""
        return ParquetPositionDeleteWriter(io, path, properties)


MODEL: Final[FormatModel] = ParquetFormatModel()
