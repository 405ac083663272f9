"""The exchange of a unit's rows: read by some tasks, written by others, in order, through scratch and past the JVM.

Where rows do not fit into one range, a sample of their keys comes first: only the key columns are read for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from producer.model.plan import Scope, Strategy
from workers.model.delete_set import FileSplit
from workers.model.units import RewriteUnit
from workers.runtime.context import UnitContext
from workers.runtime.parallel import balance, run_tasks
from workers.sorting.ranges import Ranges
from workers.sorting.sort_keys import Numbers, RowKeys, comparable
from workers.sorting.sorted_runs import RunMerger, SortedRun, SortedRunWriter
from workers.sorting.sorter import SORT_BYTES, RowSorter, row_number
from workers.sorting.zorder import Curve

_TASKS_PER_CORE: Final = 3
#: Rows may take so many times more bytes in Arrow than in their files, before any is read.
_EXPANSION: Final = 16
#: Where these are few enough for one range, the first rows of this many splits are read to see whether they are.
_WIDTH_SAMPLES: Final = 3
#: Rows of a sample; ranges come out some percent uneven.
_SAMPLE_ROWS: Final = 1 << 16
#: Bytes of one value in a sample: what lies between rows need not be a value itself.
_SAMPLE_BYTES: Final = 128

T = TypeVar("T")


class RowSource(Protocol):
    """Reads the rows of splits."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with field ids."""

    def read(self, split: FileSplit, /) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a split, in order."""

    def read_uncounted(self, split: FileSplit, /) -> Iterator[pa.RecordBatch]:
        """Yield the same, for rows that are read once more or not to their end."""


@dataclass(frozen=True)
class Exchange:
    """A unit's rows in order, cut into the runs of ranges that one task each writes, ascending."""

    merger: RunMerger

    @cached_property
    def tasks(self) -> list[range]:
        """The ranges of each task that has rows."""
        numbers = {number for run in self.merger.runs for number, _ in run.rows}
        return [ranges for ranges in self.merger.sorter.ranges.tasks if not numbers.isdisjoint(ranges)]

    def rows(self, task: int) -> dict[Scope, int]:
        """Return the number of rows of each partition that a task writes."""
        found: Counter[Scope] = Counter()
        for run in self.merger.runs:
            for (number, text), rows in run.rows.items():
                if number in self.tasks[task]:
                    found[self._partition(text)] += rows
        return found

    def read(self, task: int) -> Iterator[tuple[Scope, pa.RecordBatch]]:
        """Yield the rows of a task in order, with their partition; those of one partition follow one another."""
        for text, rows in self.merger.read(self.tasks[task]):
            yield self._partition(text), rows

    def discard(self) -> None:
        """Delete the rows in scratch."""
        for run in self.merger.runs:
            Path(run.path).unlink()

    def _partition(self, text: str) -> Scope:
        return self.merger.sorter.keys.router.partition(text)


def exchange_rows(
    context: UnitContext, unit: RewriteUnit, rows: RowSource, keys: RowSource, splits: Sequence[FileSplit], tasks: int
) -> Exchange:
    """Sort a unit's rows by output partition, and within each by the unit's strategy, or else keep their order.

    Rows that compare equal stay in the order of the splits. All rows go into scratch, as they are in Arrow. A task
    holds those of its buffer, or the keys of one range, whatever the unit measures.

    Args:
        context: What the unit's work uses; rows wait in its scratch.
        unit: What is sorted and how.
        rows: Live rows.
        keys: The same of the columns of :func:`workers.sorting.sort_keys.key_fields` alone, for a sample.
        splits: All of the inputs, in the order that rows keep where nothing else is asked for.
        tasks: How many tasks shall write; fewer do where there are few rows.

    Raises:
        ValueError: a column cannot be sorted by, interleaved, or routed by.
    """
    budget, scratch = context.budget, context.scratch
    zorder = unit.strategy is Strategy.ZORDER
    sorter = RowSorter(RowKeys.of(unit, rows.schema), None, Ranges.one(), rows.schema)
    count = sum(split.rows for split in splits)
    size = sum(split.size for split in splits) * _EXPANSION + count * SORT_BYTES
    if tasks == 1 and not zorder and size <= budget.rows_bytes:
        size = count * (_row_width(rows, splits) + SORT_BYTES)
    if tasks > 1 or zorder or size > budget.rows_bytes:
        sample, width = _sample(context, RowKeys.of(unit, keys.schema), splits, keys, rows)
        partitions, *columns, row_numbers = sample.columns
        if zorder:
            sorter = replace(sorter, curve=(curve := Curve.of(columns)))
            columns = [curve.of_rows(columns)]
        each = max(1, math.ceil(count * (width + SORT_BYTES) / (tasks * budget.rows_bytes)))
        ranges = Ranges.of([partitions, *columns, row_numbers], sorter.directions, tasks, each)
        sorter = replace(sorter, ranges=ranges)

    until_cancelled = context.cancellation.until_set

    def write_run(task: int, numbered: Iterator[tuple[int, FileSplit]]) -> Iterator[SortedRun]:
        with SortedRunWriter(scratch / f"run-{task}.arrow", sorter, budget.rows_bytes) as writer:
            for number, split in numbered:
                start = 0
                for batch in until_cancelled(rows.read(split)):
                    writer.add(split.file, batch, row_number(number, start))
                    start += batch.num_rows
            run = writer.close()
        yield run

    runs = _read_splits(context, splits, write_run)
    return Exchange(RunMerger(sorter, runs, budget.batch_bytes))


def _row_width(rows: RowSource, splits: Sequence[FileSplit]) -> int:
    """Return the bytes that a row takes in Arrow: the widest of what some splits begin with."""
    starts = [len(splits) * n // _WIDTH_SAMPLES for n in range(_WIDTH_SAMPLES + 1)]
    first = (_first_batch(rows, splits[start:end]) for start, end in pairwise(starts))
    return max((batch.nbytes // batch.num_rows for batch in first if batch is not None), default=0)


def _first_batch(rows: RowSource, splits: Sequence[FileSplit]) -> pa.RecordBatch | None:
    """Return the first rows of some splits: splits have none where a file has fewer row groups than splits."""
    return next((batch for split in splits for batch in rows.read_uncounted(split)), None)


def _read_splits(
    context: UnitContext,
    splits: Sequence[FileSplit],
    work: Callable[[int, Iterator[tuple[int, FileSplit]]], Iterable[T]],
) -> list[T]:
    """Return what ``work`` yields for each task number and the splits that the task reads, with their numbers.

    Splits are balanced by size; those of a task ascend. What ``work`` yields is pickled.
    """
    tasks = balance([split.size for split in splits], context.budget.cores * _TASKS_PER_CORE)
    return run_tasks(
        context, len(tasks), lambda task: work(task, ((number, splits[number]) for number in sorted(tasks[task])))
    )


def _sample(
    context: UnitContext, keys: RowKeys, splits: Sequence[FileSplit], key_rows: RowSource, whole_rows: RowSource
) -> tuple[pa.RecordBatch, float]:
    """Read the key columns of all splits, and pick rows evenly; each task reads a few whole rows as well.

    Returns:
        The texts of the rows' partitions, their keys, cut where they are long, and their row numbers; and the bytes
        that a whole row takes in Arrow, on average, 0 where there are no rows.
    """
    step = max(1, sum(split.rows for split in splits) // _SAMPLE_ROWS)
    until_cancelled = context.cancellation.until_set
    columns = keys.columns(pa.RecordBatch.from_pylist([], schema=key_rows.schema))
    nothing = _key_batch(pa.array([], pa.string()), columns, pa.array([], pa.int64()))

    def pick(_: int, numbered: Iterator[tuple[int, FileSplit]]) -> Iterator[tuple[pa.RecordBatch, int, int]]:
        found, rows, size = [nothing], 0, 0
        for number, split in numbered:
            start = 0
            for batch in until_cancelled(key_rows.read_uncounted(split)):
                indexes = pa.array(sample_rows(number, start, batch.num_rows, step))
                picked, row_numbers = batch.take(indexes), pc.add(indexes, row_number(number, start))
                found.append(_key_batch(keys.router.texts(split.file, picked), keys.columns(picked), row_numbers))
                start += batch.num_rows
            if start and not rows:  # a split has no rows where its file has fewer row groups than splits
                for batch in islice(whole_rows.read_uncounted(split), 1):
                    rows, size = batch.num_rows, batch.nbytes
        yield pa.concat_batches(found), rows, size

    tasks = _read_splits(context, splits, pick)
    width = sum(size for _, _, size in tasks) / max(1, sum(rows for _, rows, _ in tasks))
    return pa.concat_batches([nothing, *(found for found, _, _ in tasks)]), width


def sample_rows(number: int, start: int, rows: int, step: int) -> Numbers:
    """Return the indexes in a batch of the rows that are picked: one of each ``step`` rows, anywhere among them.

    The batch has ``rows`` rows of the split ``number`` from the row ``start`` on.
    """
    blocks = np.arange(start // step, (start + rows - 1) // step + 1, dtype=np.int64) if rows else np.zeros(0, np.int64)
    mixed = (blocks.astype(np.uint64) + np.uint64(number + 1)) * np.uint64(0x9E3779B97F4A7C15)
    found: Numbers = blocks * step + ((mixed >> np.uint64(33)) % np.uint64(step)).astype(np.int64) - start
    return found[(found >= 0) & (found < rows)]


def _key_batch(partitions: pa.Array, columns: Sequence[pa.Array], row_numbers: pa.Array) -> pa.RecordBatch:
    arrays = [partitions, *(_truncate(comparable(column)) for column in columns), row_numbers]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{index}" for index in range(len(arrays))])


def _truncate(column: pa.Array) -> pa.Array:
    return pc.binary_slice(column, 0, _SAMPLE_BYTES) if pa.types.is_binary(column.type) else column
