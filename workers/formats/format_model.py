"""The interface that a file format implements, and the registry of formats.

A format opens files for reading, in row groups that can be read on their own, and creates data files and position
delete files. What does not depend on the format is done by its users: columns by field id, canonical keys, rows in the
table's current schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Final, Protocol, Self, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO, OutputStream
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema

from producer.model.staged import StagedDataFile, StagedDeleteFile
from workers.arrow.canonical import is_ordered
from workers.arrow.fields import Leaf
from workers.model.delete_set import KeyColumn
from workers.runtime.errors import name_file

Positions = npt.NDArray[np.int64]

#: The module of each format, whose ``MODEL`` implements it; imported when a file of the format is first used.
_MODULES: Final = {FileFormat.PARQUET: "workers.formats.parquet.format_model"}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest canonical value of one key column, and whether it holds nulls; text as bytes."""

    #: None where there are only nulls.
    lower: Any = None
    upper: Any = None
    nulls: bool = False

    @classmethod
    def of(cls, column: pa.Array) -> Bounds:
        """Return the bounds of a canonical array."""
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        found = pc.min_max(column)
        return cls(found["min"].as_py(), found["max"].as_py(), column.null_count > 0)

    def union(self, other: Bounds) -> Bounds:
        """Return the bounds of both."""
        nulls = self.nulls or other.nulls
        if self.lower is None or other.lower is None:
            present = other if self.lower is None else self
            return Bounds(present.lower, present.upper, nulls)
        return Bounds(min(self.lower, other.lower), max(self.upper, other.upper), nulls)


def bounds_of(columns: Sequence[KeyColumn], arrays: Iterable[pa.Array]) -> tuple[Bounds | None, ...]:
    """Return the bounds of each key column; None for types that have no order to rely on."""
    return tuple(
        Bounds.of(array) if is_ordered(column.type) else None for column, array in zip(columns, arrays, strict=True)
    )


class DataFile(Protocol):
    """An open file. A row group is what can be read on its own: Parquet's, a stripe of ORC, a block of Avro."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The file's own schema, with field ids where it has them."""

    @property
    def row_groups(self) -> Sequence[int]:
        """The number of rows of each row group."""

    @property
    def num_rows(self) -> int:
        """The number of rows that the file states."""

    def batches(
        self, group: int, columns: Sequence[str], max_bytes: int, max_rows: int, *, added: int = 0
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group in batches of bounded size; only one iteration may go on at a time.

        Args:
            group: The row group.
            columns: Names of columns; those of a column inside structs are joined by dots. Without any, batches have
                a number of rows and no column.
            max_bytes: Bytes of a batch in memory, about; a batch has one row at least.
            max_rows: Rows of a batch.
            added: Bytes that each row takes besides, once the caller has filled in what the file lacks.
        """

    def may_match(
        self, group: int, columns: Sequence[KeyColumn], leaves: Sequence[Leaf | None], bounds: Sequence[Bounds | None]
    ) -> bool:
        """Return False only if no row of a row group can lie within the bounds in all key columns.

        Bounds are None where they are not known. A leaf that is a struct stands for a column that the file lacks: the
        struct's statistics are those of other columns.
        """


class DataFileWriter(Protocol):
    """Writes one new data file, row group by row group; without :meth:`close`, no file remains."""

    @property
    def size(self) -> int:
        """Bytes written so far; after :meth:`close` the size of the file."""

    @property
    def rows(self) -> int:
        """Rows written so far."""

    def write(self, table: pa.Table) -> None:
        """Write one row group."""

    def close(self) -> StagedDataFile:
        """Finish the file and describe it."""


class PositionDeleteWriter(Protocol):
    """Writes one new position delete file; without :meth:`close`, no file remains."""

    def write(self, data_file: str, positions: Positions) -> None:
        """Add deleted rows of a data file; paths and the positions of a path ascend."""

    def close(self, scope: int) -> StagedDeleteFile:
        """Finish the file and describe it."""


class FormatModel(Protocol):
    """A file format."""

    @property
    def extension(self) -> str:
        """The extension of file names, without the dot."""

    def open(self, io: FileIO, path: str, *, timestamp_unit: str = "us") -> AbstractContextManager[DataFile]:
        """Open a file; errors raised inside the block are distinguished as well.

        ``timestamp_unit`` is the unit of timestamps that the file stores without one.

        Raises:
            CorruptFile: the file is missing or cannot be decoded.
            UnsupportedFile: the file has another format.
            OSError: the storage failed, which may pass.
        """

    def create(
        self, io: FileIO, path: str, schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int] = ()
    ) -> AbstractContextManager[DataFileWriter]:
        """Return the writer of a new data file of ``schema``, columns of row lineage included.

        ``properties`` are those of the table. Columns that it is sorted by, ``sorted_ids``, have bounds whatever their
        metrics mode.

        Raises:
            ValueError: a property has a value that it cannot have.
        """

    def create_position_deletes(
        self, io: FileIO, path: str, properties: Mapping[str, str]
    ) -> AbstractContextManager[PositionDeleteWriter]:
        """Return the writer of a new position delete file.

        Raises:
            ValueError: a property has a value that it cannot have.
        """


class NewFile:
    """A file that is created when its first bytes are written, and deleted unless it is completed.

    It is deleted as well when the ``with`` block raises after that. An existing file is never overwritten.
    """

    def __init__(self, io: FileIO, path: str) -> None:
        self._io = io
        self._path = path
        self._stream: OutputStream | None = None
        self._closed = False
        self._complete = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None or not self._complete:
            self._discard()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{self._path} is closed")

    def _output(self) -> OutputStream:
        """Return the stream, which is opened at the first call."""
        if self._stream is None:
            self._stream = self._io.new_output(self._path).create(overwrite=False)
        return self._stream

    @contextmanager
    def _discard_on_error(self) -> Iterator[None]:
        try:
            with name_file(self._path):
                yield
        except BaseException:
            self._discard()
            raise

    def _discard(self) -> None:
        """Remove what was written; the error that led here matters more than one from removing."""
        self._closed = True
        if self._stream is not None:
            with suppress(Exception):
                self._stream.close()
            with suppress(Exception):
                self._io.delete(self._path)


@cache
def format_model(file_format: FileFormat) -> FormatModel:
    """Return the implementation of a file format.

    Raises:
        KeyError: the format is not supported; planning refuses such files.
    """
    return cast(FormatModel, import_module(_MODULES[file_format]).MODEL)
