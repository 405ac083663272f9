"""W2: as many delete files of either kind as data files, and little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.checkpoints import SCHEMA, Checkpoints
from bench.data import GeneratedTable
from bench.sizes import Size
from bench.workloads.lineitem import maintenance
from tasks.testing import StreamTable

#: Of a checkpoint, as shares of its rows: those that replace rows of earlier ones, and those that it supersedes itself.
_REPLACED, _TWICE = 0.3, 0.02


def recipe(checkpoints: int, rows: int, catalog: Catalog) -> Iterable[GeneratedTable]:
    """A table after so many checkpoints."""
    stream = Checkpoints(
        StreamTable.create(catalog, "bench.events", SCHEMA), rows, round(rows * _REPLACED), round(rows * _TWICE)
    )
    for _ in range(checkpoints):
        stream.commit()
    yield GeneratedTable(stream.table, stream.truth)


def cases(size: Size) -> Sequence[Case]:
    """Some numbers of checkpoints, each in ever larger heaps: one run, in a process that has done nothing else."""
    return [
        Case(
            name=str(count),
            title=f"{count:,} data files of {size.w2_rows:,} rows, and as many delete files of either kind",
            master=f"w2-{count}x{size.w2_rows}-1",
            recipe=partial(recipe, count, size.w2_rows),
            entries=[entry for heap in size.w2_heaps_mb for entry in _entries(heap, size.w2_seconds)],
            query="select count(note) as n, sum(amount) as amount from {table}",
            together=False,
            stop_at_success=True,
        )
        for count in size.w2_checkpoints
    ]


def _entries(heap_mb: int, limit: float) -> list[Entry]:
    return [
        replace(entry, label=f"{entry.label}, {heap_mb} MB", runs=1, warmups=0)
        for entry in maintenance(heap_mb, limit=limit)
    ]


WORKLOAD = Workload(
    name="w2",
    title="W2: the smallest heap that finishes",
    about="A stream whose every checkpoint leaves a data file, an equality delete file and a position delete file, as "
    "Flink's writers do. Almost all keys hit. Each contestant has one run in a heap, in a fresh process, and a time "
    "limit; in a larger heap only when it did not finish.",
    cases=cases,
    plot="heap",
)
