"""The exchange of a unit's rows: read by some tasks, written by others, in order, through scratch and past the JVM."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from producer.model.plan import Scope, Strategy
from workers.model.units import RewriteUnit
from workers.runtime.context import UnitContext
from workers.sorting.ranges import Ranges
from workers.sorting.sample import place_of, sample_keys
from workers.sorting.sort_keys import RowKeys
from workers.sorting.sorted_runs import RunMerger, SortedRun, SortedRunWriter
from workers.sorting.sorter import SORT_BYTES, RowSorter
from workers.sorting.sources import AnySplit, RowSource, read_splits
from workers.sorting.zorder import Curve

#: Rows may take so many times more bytes in Arrow than in their files, before anybody has looked.
_EXPANSION: Final = 16
#: Where these are few enough for one range, rows are looked at in so many places to see whether they are.
_LOOKED_INTO: Final = 3


@dataclass(frozen=True)
class Exchange:
    """A unit's rows in order, cut into lanes. Each lane is a run of it, ascending; one task writes it."""

    merge: RunMerger

    @cached_property
    def lanes(self) -> list[range]:
        """The ranges of each lane that has rows."""
        rows = {number for run in self.merge.runs for number, _ in run.rows}
        return [lane for lane in self.merge.sorter.ranges.lanes if not rows.isdisjoint(lane)]

    def rows(self, lane: int) -> dict[Scope, int]:
        """How many rows of each partition a lane has."""
        found: Counter[Scope] = Counter()
        for run in self.merge.runs:
            for (number, text), rows in run.rows.items():
                if number in self.lanes[lane]:
                    found[self._partition(text)] += rows
        return found

    def read(self, lane: int) -> Iterator[tuple[Scope, pa.RecordBatch]]:
        """A lane's rows in order, with their partition; those of one partition follow one another."""
        known: dict[str, Scope] = {}
        for text, rows in self.merge.read(self.lanes[lane]):
            if text not in known:
                known[text] = self._partition(text)
            yield known[text], rows

    def discard(self) -> None:
        """Remove what lies in scratch."""
        for run in self.merge.runs:
            Path(run.path).unlink()

    def _partition(self, text: str) -> Scope:
        return self.merge.sorter.keys.partitioning.partition(text)


def exchange_rows(
    context: UnitContext,
    unit: RewriteUnit,
    rows: RowSource[AnySplit],
    keys: RowSource[AnySplit],
    splits: Sequence[AnySplit],
    lanes: int,
) -> Exchange:
    """Sort a unit's rows by output partition, and within each as the unit's arrangement says; else as they come.

    Rows that compare equal stay in the order of the splits. All rows go into scratch, as they are in Arrow. A task
    holds those of its buffer, or the keys of one range, whatever the unit measures.

    Args:
        context: What the unit's work uses; rows wait in its scratch.
        unit: What is arranged and how.
        rows: Live rows.
        keys: The same of the columns of :func:`workers.sorting.sort_keys.key_fields` alone, for a sample.
        splits: All of the inputs, in the order that rows keep where nothing else is asked for.
        lanes: How many tasks shall write; fewer do where there are few rows.

    Raises:
        ValueError: a column cannot be sorted by, interleaved, or routed by.
    """
    budget, scratch = context.budget, context.scratch
    by = RowKeys.of(unit, rows.schema)
    zorder = unit.strategy is Strategy.ZORDER
    sorter = RowSorter(by, None, Ranges.one(), rows.schema)
    count = sum(split.rows for split in splits)
    most = sum(split.size for split in splits) * _EXPANSION + count * SORT_BYTES
    if lanes == 1 and not zorder and most <= budget.rows_bytes:
        most = count * (_width(rows, splits) + SORT_BYTES)
    if lanes > 1 or zorder or most > budget.rows_bytes:
        sample = sample_keys(context, RowKeys.of(unit, keys.schema), splits, keys, rows.read_uncounted)
        curve = Curve.of(sample.columns) if zorder else None
        columns = sample.columns if curve is None else [curve.of_rows(sample.columns)]
        each = math.ceil(count * (sample.width + SORT_BYTES) / (lanes * budget.rows_bytes))
        sorter = replace(sorter, curve=curve)
        columns = [sample.parts, *columns, sample.places]
        sorter = replace(sorter, ranges=Ranges.of(columns, sorter.directions, lanes, max(1, each)))

    until_cancelled = context.cancellation.until_set

    def keep(task: int, mine: Iterator[tuple[int, AnySplit]]) -> Iterator[SortedRun]:
        with SortedRunWriter(scratch / f"run-{task}.arrow", sorter, budget.rows_bytes) as writer:
            for number, split in mine:
                start = 0
                for batch in until_cancelled(rows.read(split)):
                    writer.add(split.file, batch, place_of(number, start))
                    start += batch.num_rows
            run = writer.close()
        yield run

    runs = read_splits(context, splits, keep)
    return Exchange(RunMerger(sorter, runs, budget.batch_bytes))


def _width(rows: RowSource[AnySplit], splits: Sequence[AnySplit]) -> int:
    """Bytes that a row takes in Arrow: the widest of what some splits begin with."""
    starts = [len(splits) * n // _LOOKED_INTO for n in range(_LOOKED_INTO + 1)]
    first = (_first(rows, splits[start:end]) for start, end in pairwise(starts))
    return max((batch.nbytes // batch.num_rows for batch in first if batch is not None), default=0)


def _first(rows: RowSource[AnySplit], splits: Sequence[AnySplit]) -> pa.RecordBatch | None:
    """The first rows of some splits: splits have none where a file has fewer row groups than splits."""
    return next((batch for split in splits for batch in rows.read_uncounted(split)), None)
