"""The data files that a rewrite writes, and the journal that names each before it is written to.

Storage behind ``FileIO`` cannot be listed, and paths cannot be known beforehand. So that files of a killed process are
found, each task numbers its paths and notes them on storage; a reader looks for one note after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from producer.model.plan import Scope, Strategy
from producer.model.staged import StagedDataFile
from workers.arrow.schema import written_schema
from workers.formats.format_model import DataFileWriter, format_model
from workers.formats.rolling_writer import RollingWriter, RowGroupLimits
from workers.model.units import RewriteUnit

_GROUP_BYTES: Final = ("write.parquet.row-group-size-bytes", 128 << 20)
_GROUP_ROWS: Final = ("write.parquet.row-group-limit", 1 << 20)

#: A data file with its partition. Its scope is a number once all files of the unit are known.
Written: TypeAlias = tuple[Scope, StagedDataFile]


@dataclass(frozen=True, slots=True)
class Journal:
    """The paths that one attempt notes. Each task numbers its notes from 0, without gaps.

    Args:
        io: The table's file access.
        base: The prefix of the notes' own paths; no other attempt uses it.
    """

    io: FileIO
    base: str

    def note(self, task: int, number: int, path: str) -> None:
        """Note the path that a task writes to next."""
        with self.io.new_output(self._path(task, number)).create(overwrite=True) as stream:
            stream.write(path.encode())

    def paths(self, tasks: int, at_least: int = 0) -> Iterator[str]:
        """Yield every path that tasks 0 to ``tasks`` - 1 have noted; an unfinished note means that nothing was written.

        Args:
            tasks: How many tasks took notes.
            at_least: How many notes of each task to look for even where earlier ones have been cleared.
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
            if self.io.new_input(path := self._path(task, number)).exists():
                yield path
            elif number >= at_least:
                return

    def _path(self, task: int, number: int) -> str:
        return f"{self.base}-{task}-{number}"


class OutputFiles:
    """Writes the data files of one task; their names contain the unit's, so that no two attempts share one.

    Args:
        unit: Where files go and how they are written.
        io: The table's file access.
        task: The task's number in the unit's journal.
        scratch: The attempt's folder; once it is deleted, nobody would delete what is written.
        rows_bytes: Bytes of rows that are buffered for a row group.
    """

    def __init__(self, unit: RewriteUnit, io: FileIO, task: int, scratch: Path, rows_bytes: int) -> None:
        self._unit = unit
        self._io = io
        self._task = task
        self._scratch = scratch
        self._journal = Journal(io, unit.journal)
        self._number = 0
        self._format = format_model(FileFormat.PARQUET)
        self._fields = written_schema(unit.schema, lineage=unit.lineage)
        rows, size = (int(unit.properties.get(name, default)) for name, default in (_GROUP_ROWS, _GROUP_BYTES))
        self._limits = RowGroupLimits(max(1, rows), max(1, size), rows_bytes)

    def write(
        self, partition: Scope, batches: Iterable[pa.RecordBatch], width: float, rows: int | None
    ) -> list[Written]:
        """Write rows of one partition into files of the right size, and describe these.

        Args:
            partition: Where the rows go.
            batches: The rows.
            width: The expected bytes of a row in a file.
            rows: The expected number of rows; None if it is unknown.
        """
        with ExitStack() as stack:
            start = lambda: stack.enter_context(self._start(partition))  # noqa: E731
            writer = RollingWriter(start, self._unit.sizes, self._limits, width, rows)
            for batch in batches:
                writer.write(batch)
            return [(partition, file) for file in writer.close()]

    def _start(self, partition: Scope) -> AbstractContextManager[DataFileWriter]:
        """Begin the next file of a partition."""
        if not self._scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        name = f"{self._unit.name}-{self._task:05d}-{self._number:05d}.{self._format.extension}"
        path = self._unit.location.new_data_location(name, partition if partition.label else None)  # type: ignore[arg-type]
        self._journal.note(self._task, self._number, path)
        self._number += 1
        return self._format.create(self._io, path, self._fields, self._unit.properties, _sorted_ids(self._unit))


def _sorted_ids(unit: RewriteUnit) -> set[int]:
    """Columns that rows are sorted by without a transform."""
    if unit.strategy is not Strategy.SORT:
        return set()
    return {key.field_id for key in unit.order if key.transform == "identity"}
