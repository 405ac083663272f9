"""Splits of a unit's inputs, and their reading by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from workers.model.delete_set import ContentFile
from workers.runtime.context import UnitContext
from workers.runtime.parallel import balance, run_tasks

_TASKS_PER_CORE: Final = 3

Batches: TypeAlias = Iterator[pa.RecordBatch]


class Split(Protocol):
    """A data file, or one of several runs of its row groups."""

    @property
    def file(self) -> ContentFile:
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


T = TypeVar("T")
AnySplit = TypeVar("AnySplit", bound=Split)
Read = TypeVar("Read", bound=Split, contravariant=True)


class RowSource(Protocol[Read]):
    """Reads the rows of splits."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, with field ids."""
        ...

    def read(self, split: Read, /) -> Batches:
        """The live rows of a split, in order."""
        ...

    def read_uncounted(self, split: Read, /) -> Batches:
        """Yield the same rows, when they are read once more or not to their end."""
        ...


def read_splits(
    context: UnitContext,
    splits: Sequence[AnySplit],
    work: Callable[[int, Iterator[tuple[int, AnySplit]]], Iterable[T]],
) -> list[T]:
    """What ``work`` gives for the number of each task and the splits that it reads, with their numbers, ascending.

    Args:
        context: The unit's; its session runs the tasks side by side.
        splits: What there is to read.
        work: One task. What it gives is pickled.
    """
    tasks = _balance(splits, context.budget.cores * _TASKS_PER_CORE)
    return run_tasks(context, len(tasks), lambda task: work(task, ((number, splits[number]) for number in tasks[task])))


def _balance(splits: Sequence[Split], most: int) -> list[list[int]]:
    """Distribute split numbers to tasks; those of a task ascend."""
    return [sorted(task) for task in balance([split.size for split in splits], most)]
