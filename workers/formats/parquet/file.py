"""Opening of Parquet files, which tells a broken file from storage that failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from workers.arrow.fields import Leaf
from workers.formats.format_model import Bounds
from workers.formats.parquet import statistics
from workers.formats.parquet.batch_decoder import STREAM_BYTES, BoundedFile
from workers.model.delete_set import KeyColumn
from workers.runtime.errors import CorruptFile, UnsupportedFile

_OTHER_FORMATS = {b"Obj\x01": "an Avro file", b"ORC": "an ORC file", b"PARE": "an encrypted Parquet file"}


class ParquetDataFile(BoundedFile):
    """An open Parquet file, as a :class:`workers.formats.format_model.DataFile`."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The file's own schema, with field ids where it has them."""
        return self.schema_arrow

    @cached_property
    def row_groups(self) -> list[int]:
        """The number of rows of each row group."""
        return [self.metadata.row_group(index).num_rows for index in range(self.metadata.num_row_groups)]

    @property
    def num_rows(self) -> int:
        """The number of rows that the footer states."""
        return int(self.metadata.num_rows)

    def may_match(
        self, group: int, columns: Sequence[KeyColumn], leaves: Sequence[Leaf | None], bounds: Sequence[Bounds | None]
    ) -> bool:
        """Return False only if no row of a row group can lie within the bounds in all key columns."""
        return statistics.may_match(self.metadata.row_group(group), columns, leaves, bounds)


@contextmanager
def open_parquet(io: FileIO, path: str, *, int96_unit: str = "us") -> Iterator[ParquetDataFile]:
    """Open a Parquet file; errors raised inside the block are told apart as well.

    Raises:
        CorruptFile: the file is missing or cannot be decoded.
        UnsupportedFile: the file has another format.
        OSError: the storage failed, which may pass.
    """
    try:
        with (
            io.new_input(path).open() as source,
            ParquetDataFile(
                source,
                coerce_int96_timestamp_unit=int96_unit,
                page_checksum_verification=True,  # where the writer left checksums, as Iceberg's own does
            ) as file,
        ):
            yield file
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    except pa.ArrowInvalid as error:
        raise _undecodable(io, path, error) from error
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedFile(path, f"Arrow does not read such Parquet ({_line(error)})") from error
    except OSError as error:
        # Arrow raises OSError without a number both for bad bytes and for a storage that fails.
        # It was the bytes if all of them can be read.
        if error.errno is not None or not _is_readable(io, path):
            raise
        raise _undecodable(io, path, error) from error


def _undecodable(io: FileIO, path: str, error: Exception) -> CorruptFile | UnsupportedFile:
    with io.new_input(path).open() as source:
        start = source.read(4)
    for magic, name in _OTHER_FORMATS.items():
        if start.startswith(magic):
            return UnsupportedFile(path, f"it is {name}; only Parquet is read")
    return CorruptFile(path, f"it cannot be read as Parquet ({_line(error)})")


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _is_readable(io: FileIO, path: str) -> bool:
    try:
        with io.new_input(path).open() as source:
            while source.read(STREAM_BYTES):
                pass
    except OSError:
        return False
    return True


def split_offset(group: pq.RowGroupMetaData) -> int:
    """Return where a row group begins in its file."""
    column = group.column(0)
    return int(column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset)
