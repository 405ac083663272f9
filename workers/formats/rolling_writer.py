"""Rows of one partition into files of about the target size, as they come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from producer.model.staged import StagedDataFile
from workers.model.rewrite_unit import Sizes

#: What is so near to a file's goal counts as there.
_NEAR: Final = 0.97
#: A row group this much larger than wanted is better than a small one after it.
_SLACK: Final = 1.2

#: The first row group is this part of a file at most: what was said of the width may be far from true.
_FIRST: Final = 8


class FileWriter(Protocol):
    """One file in the making: row groups go in, a description comes out."""

    @property
    def size(self) -> int:
        """Bytes written so far."""

    @property
    def rows(self) -> int:
        """Rows written so far."""

    def write(self, table: pa.Table) -> None:
        """Write one row group."""

    def close(self) -> StagedDataFile:
        """Finish the file."""


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """When a row group is full: whichever comes first."""

    rows: int
    #: Bytes in the file.
    encoded: int
    #: Bytes in memory.
    memory: int


class RollingWriter:
    """Writes rows into files that are evenly sized where it is known how many rows are still to come.

    The size of what is to come is judged by what was written, and what is left is shared evenly by the files that it
    makes (:meth:`Sizes.files`), so that no small file is left at the end.

    Args:
        start: Begins the next file.
        sizes: What files are to measure.
        limits: When a row group is full.
        width: Bytes that a row takes in a file, as far as that is known before.
        rows: How many rows will come, about; None when nobody knows.
    """

    def __init__(
        self, start: Callable[[], FileWriter], sizes: Sizes, limits: GroupLimits, width: float, rows: int | None
    ) -> None:
        self._start = start
        self._sizes = sizes
        self._limits = limits
        self._width = max(width, 1e-3)
        self._measured = False
        self._left = rows
        self._file: FileWriter | None = None
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._bytes = 0
        self.closed: list[StagedDataFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; those that fill a row group are written."""
        self._buffer.append(batch)
        self._buffered += batch.num_rows
        self._bytes += batch.nbytes
        while self._buffered and self._buffered >= (quota := self._quota()):
            self._flush(quota)

    def close(self) -> list[StagedDataFile]:
        """Write what is left and describe all files."""
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
        """Whether more rows have come than were said to: the file that is open takes them, as far as it may."""
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
        """How many files this one and those after it will be."""
        total = self._total()
        return 2 if total is None else self._sizes.files(total)  # there is always another one when nobody knows
