"""Pieces of a unit's inputs, and their reading by Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from workers.model.rewrite_unit import Input
from workers.runtime.lazy_session import LazySession
from workers.runtime.parallel import balance, run_tasks

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


T = TypeVar("T")
P = TypeVar("P", bound=Piece)
Read = TypeVar("Read", bound=Piece, contravariant=True)


class Source(Protocol[Read]):
    """Rows of pieces."""

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, with field ids."""
        ...

    def read(self, piece: Read, /) -> Batches:
        """The live rows of a piece, in order."""
        ...

    def look(self, piece: Read, /) -> Batches:
        """The same, when they are read once more or not to their end."""
        ...


def by_tasks(
    session: LazySession,
    pieces: Sequence[P],
    cores: int,
    scratch: Path,
    work: Callable[[int, Iterator[tuple[int, P]]], Iterable[T]],
) -> list[T]:
    """What ``work`` gives for the number of each task and the pieces that it reads, with their numbers, ascending.

    Args:
        session: What runs the tasks, side by side.
        pieces: What there is to read.
        cores: Of the session.
        scratch: Where errors are told.
        work: One task. What it gives is pickled.
    """
    tasks = _dealt(pieces, cores * _TASKS_PER_CORE)
    return run_tasks(
        session, len(tasks), scratch, lambda task: work(task, ((number, pieces[number]) for number in tasks[task]))
    )


def _dealt(pieces: Sequence[Piece], most: int) -> list[list[int]]:
    """Numbers of the pieces dealt to tasks, the largest first to the least laden, each task's ascending."""
    return [sorted(task) for task in balance([piece.size for piece in pieces], most)]
