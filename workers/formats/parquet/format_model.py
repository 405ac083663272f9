"""Parquet, as the registry of formats finds it: opening of files, row groups that statistics rule out, and writers.

A row group is left out only where no row of it can equal a delete. Floats are never judged: writers disagree on what
their statistics mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from workers.arrow.canonical import canonical_array
from workers.arrow.fields import Leaf
from workers.formats.format_model import Bounds, FormatModel
from workers.formats.parquet.batch_decoder import STREAM_BYTES, BoundedFile
from workers.formats.parquet.data_file_writer import ParquetDataFileWriter
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.model.delete_set import KeyColumn
from workers.runtime.errors import CorruptFile, UnsupportedFile

_OTHER_FORMATS = {b"Obj\x01": "an Avro file", b"ORC": "an ORC file", b"PARE": "an encrypted Parquet file"}


class ParquetDataFile(BoundedFile):
    """An open Parquet file, as a :class:`workers.formats.format_model.DataFile`."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.schema_arrow

    @cached_property
    def row_groups(self) -> list[int]:
        return [self.metadata.row_group(index).num_rows for index in range(self.metadata.num_row_groups)]

    @property
    def num_rows(self) -> int:
        return int(self.metadata.num_rows)

    def may_match(
        self, group: int, columns: Sequence[KeyColumn], leaves: Sequence[Leaf | None], bounds: Sequence[Bounds | None]
    ) -> bool:
        row_group = self.metadata.row_group(group)
        return all(
            leaf is None
            or limits is None
            or pa.types.is_struct(leaf.type)
            or _may_hold(row_group, column, leaf, limits)
            for column, leaf, limits in zip(columns, leaves, bounds, strict=True)
        )


class ParquetFormatModel:
    """Parquet as a :class:`workers.formats.format_model.FormatModel`; timestamps without a unit are INT96."""

    extension: Final = "parquet"
    create = ParquetDataFileWriter
    create_position_deletes = ParquetPositionDeleteWriter

    @contextmanager
    def open(self, io: FileIO, path: str, *, timestamp_unit: str = "us") -> Iterator[ParquetDataFile]:
        try:
            with (
                io.new_input(path).open() as source,
                ParquetDataFile(
                    source,
                    coerce_int96_timestamp_unit=timestamp_unit,
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


MODEL: Final[FormatModel] = ParquetFormatModel()


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


def _may_hold(group: pq.RowGroupMetaData, column: KeyColumn, leaf: Leaf, bounds: Bounds) -> bool:
    if leaf.column >= group.num_columns or (chunk := group.column(leaf.column)).path_in_schema != leaf.name:
        return True  # a type before it has another number of columns than is known: these are another column's
    found = chunk.statistics
    if found is None:
        return True
    nulls = found.null_count if found.has_null_count else None
    if bounds.nulls and nulls != 0:
        return True
    if bounds.lower is None or nulls == group.num_rows:
        return False
    if not found.has_min_max:
        return True
    limits = _canonical(chunk.physical_type, found, column, leaf)
    return limits is None or bool(limits[0] <= bounds.upper and limits[1] >= bounds.lower)


def _canonical(physical: str, found: pq.Statistics, column: KeyColumn, leaf: Leaf) -> tuple[Any, Any] | None:
    """Return the statistics in canonical form; None where they cannot be compared."""
    if physical == "BYTE_ARRAY":
        # Writers may cut them, but a cut lower bound is still below all values and an upper one above.
        return found.min_raw, found.max_raw
    if physical not in ("INT32", "INT64") or pa.types.is_unsigned_integer(leaf.type) or pa.types.is_decimal(leaf.type):
        return None
    raw = pa.array([found.min_raw, found.max_raw], pa.int32() if physical == "INT32" else pa.int64())
    try:
        lower, upper = canonical_array(raw.cast(leaf.type), column.type).to_pylist()
    except (ValueError, pa.ArrowException):
        return None
    return lower, upper
