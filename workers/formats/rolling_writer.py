"""Writes the rows of one partition into files of about the target size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from producer.model.staged import StagedDataFile
from workers.formats.format_model import DataFileWriter
from workers.model.units import Sizes

#: A file of this part of its goal counts as full.
_NEAR: Final = 0.97
#: A row group this much larger than wanted is better than a small one after it.
_SLACK: Final = 1.2

#: The first row group is this part of a file at most: the expected width may be far from true.
_FIRST: Final = 8


@dataclass(frozen=True, slots=True)
class RowGroupLimits:
    """When a row group is full: whichever comes first."""

    rows: int
    #: Bytes in the file.
    encoded: int
    #: Bytes in memory.
    memory: int


class RollingWriter:
    """Writes rows into files that are evenly sized where it is known how many rows are still to come.

    The size of the remaining rows is estimated from what was written, and shared evenly by the files that they make
    (:meth:`Sizes.files`), so that no small file is left at the end.

    Args:
        start: Begins the next file.
        sizes: The sizes of files.
        limits: When a row group is full.
        width: The expected bytes of a row in a file.
        rows: The expected number of rows; None if it is unknown.
    """

    def __init__(
        self, start: Callable[[], DataFileWriter], sizes: Sizes, limits: RowGroupLimits, width: float, rows: int | None
    ) -> None:
        self._start = start
        self._sizes = sizes
        self._limits = limits
        self._width = max(width, 1e-3)
        self._measured = False
        self._left = rows
        self._file: DataFileWriter | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._bytes = 0
        self.closed: list[StagedDataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write those that fill a row group."""
        self._buffer.append(batch)
        self._buffered += batch.num_rows
        self._bytes += batch.nbytes
        while self._buffered and self._buffered >= (quota := self._quota()):
            self._flush(quota)

    def close(self) -> list[StagedDataFile]:
        """Write the remaining rows and describe all files."""
        self._left = self._buffered
        while self._buffered:
            self._flush(min(self._quota(), self._buffered))
        if self._file is not None:
            self.closed.append(self._file.close())
            self._file = None
        return self.closed

    def _quota(self) -> int:
        """Rows of the next row group."""
        in_memory = self._bytes / self._buffered
        limit = min(self._limits.rows, self._limits.encoded / self._width, self._limits.memory / max(in_memory, 1e-3))
        if self._late:
            return max(1, int(limit))
        last = self._left is not None and self._files() == 1
        room: float = self._left or 0 if last else (self._goal() - self._size) / self._width
        if not self._measured:
            return max(1, int(min(room / _FIRST, limit)))
        return max(1, int(room if room <= limit * _SLACK else limit))

    def _flush(self, rows: int) -> None:
        late = self._late
        table = pa.Table.from_batches(self._buffer)
        if self._file is None:
            self._file = self._start()
        self._file.write(table.slice(0, rows))
        rest = table.slice(rows)
        self._buffer, self._buffered = rest.to_batches(), rest.num_rows
        self._bytes = rest.nbytes
        self._left = None if self._left is None else max(0, self._left - rows)
        self._width = self._file.size / self._file.rows
        self._measured = True
        full = not late and self._files() > 1 and self._size >= self._goal() * _NEAR
        if full or self._size >= self._sizes.most * _NEAR:
            self.closed.append(self._file.close())
            self._file = None

    @property
    def _late(self) -> bool:
        """Whether more rows have come than were expected: the open file takes them, as far as it may."""
        return self._left is not None and self._left < self._buffered

    @property
    def _size(self) -> int:
        return self._file.size if self._file is not None else 0

    def _goal(self) -> float:
        """Bytes at which the file is finished."""
        total = self._total()
        return self._sizes.target if total is None else max(total / self._files(), 1.0)

    def _total(self) -> float | None:
        """Bytes of this file and all that come after it."""
        return None if self._left is None else self._size + self._left * self._width

    def _files(self) -> int:
        """The number of files, this one and those after it."""
        total = self._total()
        return 2 if total is None else self._sizes.files(total)  # there is always another if rows are unknown
