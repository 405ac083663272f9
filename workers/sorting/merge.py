"""Sorted runs put together: the rows of one range after another, in order, a slice at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.sorting.ranks import Numbers
from workers.sorting.sorted_runs import Run, ranks_of
from workers.sorting.sorter import Arranger


@dataclass(frozen=True)
class Merge:
    """Reads rows back from their runs.

    Of a range only the keys and the order are held; rows are mapped, and each run is read from its beginning to its
    end, so a range of any size will do.

    Args:
        arranger: How rows are arranged.
        runs: All that there are.
        slice_bytes: What is given at a time, about.
    """

    arranger: Arranger
    runs: Sequence[Run]
    slice_bytes: int

    def texts(self) -> list[str]:
        """Of all partitions, in order."""
        return sorted({text for run in self.runs for text in run.texts})

    def read(self, ranges: range) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows of these ranges in order, with the text of the partition that they belong to."""
        texts = self.texts()
        every = ranks_of(pa.array(texts, pa.string()))
        known = dict(zip(texts, every.tolist(), strict=True))
        ranks = [np.array([known[text] for text in run.texts], np.int64) for run in self.runs]
        for number in ranges:
            for parts, rows in self._range(number, ranks):
                edges = np.flatnonzero(np.diff(parts)) + 1
                for start, end in pairwise([0, *edges.tolist(), len(parts)]):
                    yield texts[parts[start]], rows.slice(start, end - start)

    def _range(
        self, number: int, ranks: Sequence[npt.NDArray[np.int64]]
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """Rows of a range in order, a slice at a time, with the ranks of their partitions."""
        with ExitStack() as stack:
            found = [
                (rank, batch)
                for run, rank in zip(self.runs, ranks, strict=True)
                for batch in _batches(stack, run, number)
            ]
            if not found:
                return
            batches = [batch for _, batch in found]
            order = self.arranger.order(batches, [rank for rank, _ in found])
            parts = np.concatenate([rank[batch.column(0).to_numpy()] for rank, batch in found])
            width = self.arranger.width
            rows = [pa.RecordBatch.from_arrays(b.columns[width:], schema=self.arranger.rows) for b in batches]
            del batches, found
            start = 0
            for some in _merged(rows, order, self.slice_bytes):
                yield parts[order[start : start + some.num_rows]], some
                start += some.num_rows


def _batches(stack: ExitStack, run: Run, number: int) -> Iterator[pa.RecordBatch]:
    mine = [index for index, of in enumerate(run.batches) if of == number]
    if mine:
        file = stack.enter_context(pa.ipc.open_file(stack.enter_context(pa.memory_map(run.path))))
        yield from (file.get_batch(index) for index in mine)


def _merged(batches: Sequence[pa.RecordBatch], order: Numbers, most: int) -> Iterator[pa.RecordBatch]:
    """The rows of batches, each of which is in order itself, in slices of about so many bytes.

    Args:
        batches: What is merged.
        order: Indexes of rows, counted through the batches.
        most: Bytes.
    """
    firsts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    step = max(1, most * len(order) // max(1, sum(batch.nbytes for batch in batches)))
    taken = np.zeros(len(batches), np.int64)
    start = 0
    while start < len(order):
        rows = min(step, len(order) - start)
        while True:
            indexes = order[start : start + rows]
            sources = np.searchsorted(firsts, indexes, "right") - 1
            counts = np.bincount(sources, minlength=len(batches))
            slices = [b.slice(t, c) for b, t, c in zip(batches, taken.tolist(), counts.tolist(), strict=True) if c]
            if rows == 1 or sum(some.nbytes for some in slices) <= 2 * most:
                break
            rows //= 2  # rows here are much wider than they are elsewhere
        within = indexes - firsts[sources] - taken[sources]
        if within.min() < 0 or (within >= counts[sources]).any():
            raise RuntimeError("a run is not in order")
        begins = np.cumsum(counts) - counts
        yield _taken(slices, begins[sources] + within)
        taken += counts
        start += rows


def _taken(slices: Sequence[pa.RecordBatch], indexes: Numbers) -> pa.RecordBatch:
    if len(slices) == 1:
        return slices[0]
    table = pa.Table.from_batches(slices).take(pa.array(indexes)).combine_chunks()
    return table.to_batches()[0]
