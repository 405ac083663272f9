"""Pieces of a unit's inputs, and their reading by Spark's tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from workers.batches import gathered
from workers.failures import told
from workers.rewriting import Input

_TASKS_PER_CORE: Final = 3

Batches: TypeAlias = Iterator[pa.RecordBatch]


class Piece(Protocol):
    """A data file, or one of several runs of its row groups."""

    @property
    def file(self) -> Input:
        """The data file."""
        ...

    @property
    def size(self) -> int:
        """Bytes."""
        ...

    @property
    def rows(self) -> int:
        """About."""
        ...


P = TypeVar("P", bound=Piece)


def read_by_tasks(
    session: SparkSession,
    pieces: Sequence[P],
    cores: int,
    scratch: Path,
    rows: Callable[[int, P], Batches],
    ddl: str,
) -> DataFrame:
    """What ``rows`` gives for the number of each piece and the piece, read side by side."""
    tasks = _dealt(pieces, cores * _TASKS_PER_CORE)
    ids = session.range(0, len(tasks), 1, len(tasks))

    def read(batches: Batches) -> Batches:
        with told(scratch):
            mine = (number for batch in batches for task in batch.column(0).to_pylist() for number in tasks[task])
            yield from gathered(batch for number in mine for batch in rows(number, pieces[number]))

    return ids.mapInArrow(read, ddl)


def _dealt(pieces: Sequence[Piece], most: int) -> list[list[int]]:
    """Numbers of the pieces dealt to tasks, the largest first to the least laden, each task's ascending."""
    tasks: list[list[int]] = [[] for _ in range(max(1, min(most, len(pieces))))]
    loads = [(0, task) for task in range(len(tasks))]
    for number in sorted(range(len(pieces)), key=lambda number: -pieces[number].size):
        load, task = loads[0]
        tasks[task].append(number)
        heapq.heapreplace(loads, (load + pieces[number].size + 1, task))
    return [sorted(task) for task in tasks]
