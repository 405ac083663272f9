"""Ranges of rows for the tasks of a sort: boundaries out of a sample, and the range of each row, by the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.ladder import Codes, Ladder

#: How far a boundary may be moved to where the first column changes, in parts of a range.
_SLACK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Direction:
    """How one key column is sorted."""

    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges of the order of some key columns. Rows that compare equal are in the same one."""

    directions: tuple[Direction, ...]
    #: The boundaries' distinct values in each column.
    ladders: tuple[Ladder, ...]
    #: For each column, what the boundaries' first columns up to this one amount to: distinct, ascending.
    states: tuple[Codes, ...]

    @classmethod
    def of(cls, sample: Sequence[pa.Array], directions: Sequence[Direction], number: int) -> Self:
        """Ranges of about as many rows each, going by a sample; ``number`` of them at most.

        Where values of the first column begin near a boundary, the boundary is moved there.

        Args:
            sample: The key columns, sortable, of rows picked evenly; the first has no nulls.
            directions: Of each column.
            number: Of ranges; 1 or more.
        """
        order = pa.array(_sorted(sample, directions))
        cuts = pa.array(_cuts(sample[0].take(order), number))
        bounds = [column.take(order).take(cuts) for column in sample]
        ladders = tuple(Ladder.of(column) for column in bounds)
        states: list[Codes] = []
        state: Codes = np.zeros(len(cuts), np.int64)
        for ladder, direction, column in zip(ladders, directions, bounds, strict=True):
            step = _step(state, ladder, direction, column)
            states.append(np.unique(step))
            state = _among(states[-1], step)
        return cls(tuple(directions), ladders, tuple(states))

    def __len__(self) -> int:
        return len(self.states[-1]) + 1

    def of_rows(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        """The range of each row: a row on a boundary belongs to the range that begins there."""
        state: Codes = np.zeros(len(columns[0]), np.int64)
        for known, ladder, direction, column in zip(self.states, self.ladders, self.directions, columns, strict=True):
            state = _among(known, _step(state, ladder, direction, column))
        return ((state + 1) // 2).astype(np.int32)


def _step(state: Codes, ladder: Ladder, direction: Direction, column: pa.Array) -> Codes:
    """A number for each row that orders rows by the columns of ``state`` first and then by one more."""
    codes = ladder.codes(column)
    if direction.descending:
        codes = ladder.top - codes
    codes += 1
    if column.null_count:
        codes[pc.is_null(column).to_numpy(zero_copy_only=False)] = 0 if direction.nulls_first else ladder.top + 2
    return state * (ladder.top + 3) + codes


def _among(known: Codes, step: Codes) -> Codes:
    """Twice the number of known ones below each, one more where it is known: small numbers for the next column."""
    below: Codes = np.searchsorted(known, step, "left").astype(np.int64)
    if not len(known):
        return below
    found: Codes = 2 * below + (known[np.minimum(below, len(known) - 1)] == step).astype(np.int64)
    return found


def _sorted(columns: Sequence[pa.Array], directions: Sequence[Direction]) -> Codes:
    """Indexes of rows in order; rows that compare equal in any."""
    keys = [
        _step(np.zeros(len(column), np.int64), Ladder.of(column), direction, column)
        for column, direction in zip(columns, directions, strict=True)
    ]
    return np.lexsort(keys[::-1]).astype(np.int64)


def _cuts(first: pa.Array, number: int) -> Codes:
    """Which rows of a sorted sample begin the second range and those after it."""
    rows = len(first)
    if rows < 2 or number < 2:
        return np.zeros(0, np.int64)
    cuts = np.arange(1, number) * rows // number
    changes = 1 + np.flatnonzero(_changes(first))
    if changes.size:
        after = np.searchsorted(changes, cuts)
        near = np.stack((changes[np.maximum(after - 1, 0)], changes[np.minimum(after, len(changes) - 1)]))
        nearest = near[np.argmin(np.abs(near - cuts), axis=0), np.arange(len(cuts))]
        cuts = np.where(np.abs(nearest - cuts) <= _SLACK * rows / number, nearest, cuts)
    return np.unique(cuts[cuts > 0])


def _changes(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value but the first differs from the one before it, for a column without nulls."""
    return pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
