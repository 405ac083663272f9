"""Sorted runs of rows in scratch, and their merge: an external sort, through Arrow files that are mapped to be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa

from workers.model.delete_set import ContentFile
from workers.sorting.sort_keys import Numbers, rank_values
from workers.sorting.sorter import SORT_BYTES, RowSorter


@dataclass(frozen=True, slots=True)
class SortedRun:
    """A file of keyed rows (:class:`workers.sorting.sorter.RowSorter`): one batch for each range and flush."""

    path: str
    #: Texts of partitions, by the numbers that stand for them.
    texts: tuple[str, ...]
    #: The range of each batch.
    batches: tuple[int, ...]
    #: Rows by range and text.
    rows: dict[tuple[int, str], int]


class SortedRunWriter:
    """Buffers rows up to a number of bytes, with what sorting takes; sorts them, and writes them by range.

    All ranges of a run are in one file, so neither open files nor memory grow with their number.
    """

    def __init__(self, path: Path, sorter: RowSorter, max_bytes: int) -> None:
        self._path = path
        self._sorter = sorter
        self._schema = sorter.schema
        self._max_bytes = max_bytes
        self._buffer: list[pa.RecordBatch] = []
        self._bytes = 0
        self._numbers: dict[str, int] = {}
        self._batches: list[int] = []
        self._rows: Counter[tuple[int, str]] = Counter()
        self._file = pa.ipc.new_file(str(path), self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, file: ContentFile, batch: pa.RecordBatch, first: int) -> None:
        """Add consecutive rows of a file; ``first`` is the number of the first one, which ascends from call to call.

        Raises:
            ValueError: a partition's transform does not apply to a value.
        """
        encoded = self._sorter.keys.router.encoded(file, batch)
        numbers = [self._numbers.setdefault(text, len(self._numbers)) for text in encoded.dictionary.to_pylist()]
        partitions = np.array(numbers, np.int32)[encoded.indices.to_numpy()]
        keyed = pa.RecordBatch.from_arrays(self._sorter.keyed_columns(partitions, first, batch), schema=self._schema)
        size = keyed.nbytes + SORT_BYTES * keyed.num_rows
        if self._bytes + size > 2 * self._max_bytes:
            self._flush()  # a few rows may be so large that they are better sorted alone
        self._buffer.append(keyed)
        self._bytes += size
        if self._bytes >= self._max_bytes:
            self._flush()

    def close(self) -> SortedRun:
        """Write the remaining rows and describe the file."""
        self._flush()
        return SortedRun(str(self._path), tuple(self._numbers), tuple(self._batches), dict(self._rows))

    def _flush(self) -> None:
        if not self._buffer:
            return
        texts = pa.array(list(self._numbers), pa.string())
        order = pa.array(self._sorter.sort_indices(self._buffer, [rank_values(texts)] * len(self._buffer)))
        buffered = (batch.columns for batch in self._buffer)
        columns: list[Any] = [pa.chunked_array(chunks) for chunks in zip(*buffered, strict=True)]
        self._buffer, self._bytes = [], 0
        for index, column in enumerate(columns):  # each is freed as soon as the sorted one exists
            columns[index] = column.take(order).combine_chunks()
        batch = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        starts = self._sorter.starts(batch, texts)
        for number, (start, end) in enumerate(pairwise([*starts, batch.num_rows])):
            if end > start:
                rows = batch.slice(start, end - start)
                self._file.write_batch(rows)
                self._batches.append(number)
                counts = np.bincount(rows.column(0).to_numpy())
                for partition in np.flatnonzero(counts).tolist():
                    self._rows[number, texts[partition].as_py()] += int(counts[partition])


@dataclass(frozen=True)
class RunMerger:
    """Merges sorted runs: reads one range after another, in order, a slice at a time.

    Only the keys and the order of a range are held; rows are mapped, and each run is read from its beginning to its
    end, so a range may have any size.
    """

    sorter: RowSorter
    runs: Sequence[SortedRun]
    #: Bytes of a slice, about.
    slice_bytes: int

    def read(self, ranges: range) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of these ranges in order, with the text of their partition."""
        texts = sorted({text for run in self.runs for text in run.texts})
        known = {text: rank for rank, text in enumerate(texts)}
        ranks = [np.array([known[text] for text in run.texts], np.int64) for run in self.runs]
        for number in ranges:
            for partitions, rows in self._range(number, ranks):
                edges = np.flatnonzero(np.diff(partitions)) + 1
                for start, end in pairwise([0, *edges.tolist(), len(partitions)]):
                    yield texts[partitions[start]], rows.slice(start, end - start)

    def _range(self, number: int, ranks: Sequence[Numbers]) -> Iterator[tuple[Numbers, pa.RecordBatch]]:
        """Yield the rows of a range in order, a slice at a time, with the ranks of their partitions."""
        with ExitStack() as stack:
            found = [
                (rank, batch)
                for run, rank in zip(self.runs, ranks, strict=True)
                for batch in _batches(stack, run, number)
            ]
            if not found:
                return
            batches = [batch for _, batch in found]
            order = self.sorter.sort_indices(batches, [rank for rank, _ in found])
            partitions = np.concatenate([rank[batch.column(0).to_numpy()] for rank, batch in found])
            width = self.sorter.width
            rows = [pa.RecordBatch.from_arrays(b.columns[width:], schema=self.sorter.rows) for b in batches]
            del batches, found
            start = 0
            for merged in _merge_batches(rows, order, self.slice_bytes):
                yield partitions[order[start : start + merged.num_rows]], merged
                start += merged.num_rows


def _batches(stack: ExitStack, run: SortedRun, number: int) -> Iterator[pa.RecordBatch]:
    indexes = [index for index, range_number in enumerate(run.batches) if range_number == number]
    if indexes:
        file = stack.enter_context(pa.ipc.open_file(stack.enter_context(pa.memory_map(run.path))))
        yield from (file.get_batch(index) for index in indexes)


def _merge_batches(batches: Sequence[pa.RecordBatch], order: Numbers, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, each of which is in order itself, in slices of about ``max_bytes``.

    ``order`` has the indexes of rows, counted through the batches.
    """
    firsts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    step = max(1, max_bytes * len(order) // max(1, sum(batch.nbytes for batch in batches)))
    taken = np.zeros(len(batches), np.int64)
    start = 0
    while start < len(order):
        rows = min(step, len(order) - start)
        while True:
            indexes = order[start : start + rows]
            sources = np.searchsorted(firsts, indexes, "right") - 1
            counts = np.bincount(sources, minlength=len(batches))
            slices = [b.slice(t, c) for b, t, c in zip(batches, taken.tolist(), counts.tolist(), strict=True) if c]
            if rows == 1 or sum(batch.nbytes for batch in slices) <= 2 * max_bytes:
                break
            rows //= 2  # rows here are much wider than they are elsewhere
        within = indexes - firsts[sources] - taken[sources]
        if within.min() < 0 or (within >= counts[sources]).any():
            raise RuntimeError("a run is not in order")
        begins = np.cumsum(counts) - counts
        yield _take(slices, begins[sources] + within)
        taken += counts
        start += rows


def _take(slices: Sequence[pa.RecordBatch], indexes: Numbers) -> pa.RecordBatch:
    if len(slices) == 1:
        return slices[0]
    table = pa.Table.from_batches(slices).take(pa.array(indexes)).combine_chunks()
    return table.to_batches()[0]
