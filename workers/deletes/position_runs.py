"""Sorted runs of positions in scratch: how the deleted rows of data files get from the tasks that find them to others.

They are eight bytes each and never see the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.formats.format_model import Positions
from workers.runtime.parallel import balance, map_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Files = npt.NDArray[np.int32]

_WIDTH: Final = 8
#: Rows in no order that are sorted at a time.
_SORTED_AT_A_TIME: Final = 1 << 21
#: What a data file costs, in positions written in that time, and what a task of its own is worth.
_FILE_POSITIONS: Final = 50_000
_TASK_POSITIONS: Final = 1_000_000
#: Positions of one data file that are put together at a time.
_WINDOW: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PositionRuns:
    """A file of runs. A run is of one data file, ascending and without repeats; a data file may have several."""

    path: str
    #: The data file of each run.
    files: Files
    #: Where each run ends, in positions.
    ends: npt.NDArray[np.int64]


class PositionRunWriter:
    """Writes one file of runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stream = path.open("wb")
        self._files: list[int] = []
        self._ends: list[int] = []
        self._last = -1
        self._waiting: list[tuple[Files, Positions]] = []
        self._rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def add(self, file: int, positions: Positions) -> None:
        """Add positions of one data file, ascending and without repeats."""
        if not positions.size:
            return
        end = (self._ends[-1] if self._ends else 0) + positions.size
        if self._files and self._files[-1] == file and self._last < positions[0]:
            self._ends[-1] = end
        else:
            self._files.append(file)
            self._ends.append(end)
        self._last = int(positions[-1])
        self._stream.write(np.ascontiguousarray(positions, dtype=np.int64).data)

    def add_ascending(self, files: Files, positions: Positions) -> None:
        """Add rows of any data files; a run ends where the file changes or positions do not ascend."""
        if files.size:
            starts = np.flatnonzero((files[1:] != files[:-1]) | (positions[1:] <= positions[:-1])) + 1
            for file, run in zip(files[np.append(0, starts)].tolist(), np.split(positions, starts), strict=True):
                self.add(file, run)

    def add_rows(self, files: Files, positions: Positions) -> None:
        """Add rows of any data files in any order; a bounded number of them waits to be sorted."""
        if files.size:
            self._waiting.append((files, positions))
            self._rows += files.size
        if self._rows >= _SORTED_AT_A_TIME:
            self._flush()

    def close(self) -> PositionRuns:
        """Write what waits, and describe the file."""
        self._flush()
        self._stream.close()
        return PositionRuns(str(self._path), np.array(self._files, np.int32), np.array(self._ends, np.int64))

    def _flush(self) -> None:
        if not self._waiting:
            return
        files, positions = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting, self._rows = [], 0
        order = np.lexsort((positions, files))
        files, positions = files[order], positions[order]
        distinct = np.concatenate([[True], (files[1:] != files[:-1]) | (positions[1:] != positions[:-1])])
        self.add_ascending(files[distinct], positions[distinct])


def write_runs(rows: DataFrame, scratch: Path, name: str) -> list[PositionRuns]:
    """Write the rows of a frame ``file, pos`` into files of scratch that begin with ``name``; no run repeats a row."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[PositionRuns]:
        with PositionRunWriter(scratch / f"{name}-{token_hex(8)}.positions") as writer:
            for batch in batches:
                writer.add_rows(batch.column("file").to_numpy(), batch.column("pos").to_numpy())
            yield writer.close()

    return map_partitions(rows, scratch, write)


@dataclass(frozen=True, slots=True)
class PositionBatch:
    """Consecutive positions of one data file, ascending and distinct, and which of them were deleted before."""

    file: int
    positions: Positions
    before: npt.NDArray[np.bool_]


class DeletedPositions:
    """The rows of data files that equality deletes match, and those that were deleted by position before."""

    def __init__(self, matched: Sequence[PositionRuns], before: Sequence[PositionRuns]) -> None:
        sources = [*matched, *before]
        self._paths = [runs.path for runs in sources]
        counts = [runs.files.size for runs in sources]
        files = np.concatenate([np.empty(0, np.int32), *(runs.files for runs in sources)])
        order = np.argsort(files, kind="stable")
        self._files = files[order]
        self._sources = np.repeat(np.arange(len(sources)), counts)[order]
        self._ends = np.concatenate([np.empty(0, np.int64), *(runs.ends for runs in sources)])[order]
        starts = (np.concatenate([[0], runs.ends[:-1]]) for runs in sources if runs.ends.size)
        self._starts = np.concatenate([np.empty(0, np.int64), *starts])[order]
        self._is_match = self._sources < len(matched)

    def counts(self, *, matched: bool = False) -> dict[int, int]:
        """Return how many positions each data file has, about, ascending by data file; or only matched rows."""
        chosen = self._is_match if matched else np.ones(self._files.size, dtype=bool)
        files, where = np.unique(self._files[chosen], return_inverse=True)
        sizes = np.bincount(where, weights=(self._ends - self._starts)[chosen], minlength=files.size)
        return dict(zip(files.tolist(), sizes.astype(np.int64).tolist(), strict=True))

    def read(self, file: int) -> Iterator[PositionBatch]:
        """Yield the positions of a data file, ascending and distinct; a bounded number of them at a time."""
        first, end = np.searchsorted(self._files, [file, file + 1])
        runs = [self._run(number) for number in range(first, end)]
        is_match = self._is_match[first:end]
        if sum(run.size for run in runs) <= _WINDOW:
            yield from _merge(file, runs, is_match)
            return
        each = max(1, _WINDOW // len(runs))
        while any(run.size for run in runs):
            upper = min(run[min(each, run.size) - 1] for run in runs if run.size)
            cuts = [int(np.searchsorted(run, upper, side="right")) for run in runs]
            yield from _merge(file, [run[:cut] for run, cut in zip(runs, cuts, strict=True)], is_match)
            runs = [run[cut:] for run, cut in zip(runs, cuts, strict=True)]

    def _run(self, number: int) -> Positions:
        """Return a run: read where it is short, mapped where it is long."""
        path, start = self._paths[self._sources[number]], int(self._starts[number])
        size = int(self._ends[number]) - start
        if size <= _WINDOW:
            return np.fromfile(path, np.int64, size, offset=start * _WIDTH)
        return np.memmap(path, np.int64, "r", start * _WIDTH, (size,))


def _merge(file: int, runs: Sequence[Positions], is_match: npt.NDArray[np.bool_]) -> Iterator[PositionBatch]:
    matched = _union([run for run, match in zip(runs, is_match, strict=True) if match])
    before = _union([run for run, match in zip(runs, is_match, strict=True) if not match])
    if not before.size:
        if matched.size:
            yield PositionBatch(file, matched, np.zeros(matched.size, dtype=bool))
        return
    every = np.union1d(matched, before)
    yield PositionBatch(file, every, np.isin(every, before, assume_unique=True))


def _union(runs: Sequence[Positions]) -> Positions:
    if len(runs) == 1:
        return runs[0]
    return np.unique(np.concatenate([np.empty(0, np.int64), *runs]))


def balance_positions(counts: Sequence[int], cores: int) -> list[list[int]]:
    """Return for each task the indexes of its data files, ascending, from the number of positions of each file."""
    costs = [count + _FILE_POSITIONS for count in counts]
    tasks = balance(costs, max(1, min(cores, sum(costs) // _TASK_POSITIONS))) if costs else []
    return [sorted(task) for task in tasks]
