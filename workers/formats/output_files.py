"""The data files that a rewrite writes, rolled at about the target size, and the journal of their paths.

Storage behind ``FileIO`` cannot be listed, and paths cannot be known beforehand. So that files of a killed process are
found, each task numbers its paths and writes each to a note on storage before it writes to the path.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from producer.model.plan import Scope, Strategy
from producer.model.staged import StagedDataFile
from workers.arrow.schema import data_file_schema
from workers.formats.format_model import DataFileWriter, format_model
from workers.model.units import RewriteUnit, Sizes
from workers.runtime.errors import name_file
from workers.runtime.scratch import check_scratch

_GROUP_BYTES: Final = ("write.parquet.row-group-size-bytes", 128 << 20)
_GROUP_ROWS: Final = ("write.parquet.row-group-limit", 1 << 20)
#: A file of this part of its goal counts as full.
_FULL_SHARE: Final = 0.97
#: A row group this much larger than wanted is better than a small one after it.
_GROUP_SLACK: Final = 1.2
#: The first row group is this part of a file at most: the expected width may be far from true.
_FIRST_GROUP_PARTS: Final = 8

#: A data file with its partition. Its scope is a number once all files of the unit are known.
ScopedFile: TypeAlias = tuple[Scope, StagedDataFile]


@dataclass(frozen=True, slots=True)
class Journal:
    """The paths that one attempt notes. Each task numbers its notes from 0, without gaps."""

    io: FileIO
    #: The prefix of the notes' own paths; no other attempt uses it.
    base: str
    #: The paths of all notes, if they were listed.
    listed: frozenset[str] | None = None

    def note(self, task: int, number: int, path: str) -> None:
        """Note the path that a task writes to next."""
        note = self._path(task, number)
        with name_file(note), self.io.new_output(note).create(overwrite=True) as stream:
            stream.write(path.encode())

    def paths(self, tasks: int, at_least: int = 0) -> Iterator[str]:
        """Yield every path that tasks 0 to ``tasks`` - 1 have noted; an unfinished note means that nothing was written.

        The first ``at_least`` notes of each task are found even where some of them have been cleared.
        """
        for task in range(tasks):
            for note in self._notes(task, at_least):
                with suppress(FileNotFoundError), self.io.new_input(note).open(seekable=False) as stream:
                    if path := stream.read().decode(errors="replace"):  # bytes that are not text name no file of ours
                        yield path

    def clear(self, tasks: int, at_least: int = 0) -> None:
        """Delete the notes; the first of each task last, so that the others are found again if this stops halfway.

        Safe to run side by side. The arguments are those of :meth:`paths`.
        """
        for task in range(tasks):
            for note in reversed(list(self._notes(task, at_least))):
                with suppress(FileNotFoundError):
                    self.io.delete(note)

    def _notes(self, task: int, at_least: int) -> Iterator[str]:
        for number in itertools.count():
            path = self._path(task, number)
            if path in self.listed if self.listed is not None else self.io.new_input(path).exists():
                yield path
            elif number >= at_least:
                return

    def _path(self, task: int, number: int) -> str:
        return f"{self.base}-{task}-{number}"


@dataclass(frozen=True, slots=True)
class RowGroupLimits:
    """When a row group is full: whichever comes first."""

    rows: int
    #: Bytes in the file.
    encoded: int
    #: Bytes in memory.
    memory: int


class RollingWriter:
    """Writes rows into evenly sized files.

    The size of the remaining rows is estimated from what was written, and shared evenly by the files that they make
    (:meth:`Sizes.files`), so that no small file is left at the end.

    ``start`` creates the next file. ``width`` is the expected bytes of a row in a file, ``rows`` the expected number of
    rows; there may be fewer or more.
    """

    def __init__(
        self, start: Callable[[], DataFileWriter], sizes: Sizes, limits: RowGroupLimits, width: float, rows: int
    ) -> None:
        self._start = start
        self._sizes = sizes
        self._limits = limits
        self._width = max(width, 1e-3)
        self._measured = False
        self._rows_left = rows
        self._file: DataFileWriter | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._bytes = 0
        self._files: list[StagedDataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write those that fill a row group."""
        self._buffer.append(batch)
        self._buffered += batch.num_rows
        self._bytes += batch.nbytes
        while self._buffered and self._buffered >= (quota := self._quota()):
            self._flush(quota)

    def close(self) -> list[StagedDataFile]:
        """Write the remaining rows and describe all files."""
        self._rows_left = self._buffered
        while self._buffered:
            self._flush(min(self._quota(), self._buffered))
        if self._file is not None:
            self._files.append(self._file.close())
            self._file = None
        return self._files

    def _quota(self) -> int:
        """Return the number of rows of the next row group."""
        in_memory = self._bytes / self._buffered
        limit = min(self._limits.rows, self._limits.encoded / self._width, self._limits.memory / max(in_memory, 1e-3))
        if self._has_excess:
            return max(1, int(limit))
        room = self._rows_left if self._file_count() == 1 else (self._file_goal() - self._size) / self._width
        if not self._measured:
            return max(1, int(min(room / _FIRST_GROUP_PARTS, limit)))
        return max(1, int(room if room <= limit * _GROUP_SLACK else limit))

    def _flush(self, rows: int) -> None:
        has_excess = self._has_excess
        table = pa.Table.from_batches(self._buffer)
        if self._file is None:
            self._file = self._start()
        self._file.write(table.slice(0, rows))
        rest = table.slice(rows)
        self._buffer, self._buffered = rest.to_batches(), rest.num_rows
        self._bytes = rest.nbytes
        self._rows_left = max(0, self._rows_left - rows)
        self._width = self._file.size / self._file.rows
        self._measured = True
        full = not has_excess and self._file_count() > 1 and self._size >= self._file_goal() * _FULL_SHARE
        if full or self._size >= self._sizes.most * _FULL_SHARE:
            self._files.append(self._file.close())
            self._file = None

    @property
    def _has_excess(self) -> bool:
        """Whether more rows have come than were expected: the open file takes them, up to the largest size."""
        return self._rows_left < self._buffered

    @property
    def _size(self) -> int:
        return self._file.size if self._file is not None else 0

    def _file_goal(self) -> float:
        """Return the bytes at which the file is finished."""
        return max(self._total() / self._file_count(), 1.0)

    def _total(self) -> float:
        """Return the bytes of this file and all that come after it."""
        return self._size + self._rows_left * self._width

    def _file_count(self) -> int:
        """Return the number of files, this one and those after it."""
        return self._sizes.files(self._total())


class OutputFiles:
    """Writes the data files of one task; their names contain the unit's, so that no two attempts share one.

    ``task`` is the task's number in the unit's journal, ``scratch`` the attempt's folder, and ``rows_bytes`` are the
    bytes of rows that are buffered for a row group.
    """

    def __init__(self, unit: RewriteUnit, io: FileIO, task: int, scratch: Path, rows_bytes: int) -> None:
        self._unit = unit
        self._io = io
        self._task = task
        self._scratch = scratch
        self._journal = Journal(io, unit.journal)
        self._number = 0
        self._format = format_model(FileFormat.PARQUET)
        self._fields = data_file_schema(unit.schema, lineage=unit.lineage)
        rows, size = (int(unit.properties.get(name, default)) for name, default in (_GROUP_ROWS, _GROUP_BYTES))
        #: Columns that rows are sorted by without a transform.
        self._sorted_ids = {
            key.field_id for key in unit.order if unit.strategy is Strategy.SORT and key.transform == "identity"
        }
        self._limits = RowGroupLimits(max(1, rows), max(1, size), rows_bytes)

    def write(self, partition: Scope, batches: Iterable[pa.RecordBatch], width: float, rows: int) -> list[ScopedFile]:
        """Write rows of one partition into files of the right size, and describe these; see :class:`RollingWriter`."""
        with ExitStack() as stack:
            start = lambda: stack.enter_context(self._start(partition))  # noqa: E731
            writer = RollingWriter(start, self._unit.sizes, self._limits, width, rows)
            for batch in batches:
                writer.write(batch)
            return [(partition, file) for file in writer.close()]

    def _start(self, partition: Scope) -> AbstractContextManager[DataFileWriter]:
        """Create the next file of a partition."""
        check_scratch(self._scratch)
        name = f"{self._unit.name}-{self._task:05d}-{self._number:05d}.{self._format.extension}"
        path = self._unit.location.new_data_location(name, partition if partition.label else None)  # type: ignore[arg-type]
        self._journal.note(self._task, self._number, path)
        self._number += 1
        return self._format.create(self._io, path, self._fields, self._unit.properties, self._sorted_ids)
