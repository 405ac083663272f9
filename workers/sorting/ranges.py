"""Ranges of rows: boundaries out of a sample, and the range of each row, by the column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.sorting.ladder import Codes, Ladder
from workers.sorting.ranks import Direction, order_of

#: How far a boundary may be moved to where the first column changes, in parts of a range.
_SLACK: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges of the order of some key columns. Rows that compare equal are in the same one."""

    directions: tuple[Direction, ...]
    #: The boundaries' distinct values in each column.
    ladders: tuple[Ladder, ...]
    #: For each column, what the boundaries' first columns up to this one amount to: distinct, ascending.
    states: tuple[Codes, ...]
    #: The ranges of each lane: one after another, none empty.
    lanes: tuple[range, ...]

    @classmethod
    def of(cls, sample: Sequence[pa.Array], directions: Sequence[Direction], lanes: int, each: int = 1) -> Self:
        """Lanes of about as many rows each, going by a sample, cut into ``each`` ranges; less of both for few rows.

        Where values of the first column begin near the boundary of a lane, the boundary is moved there.

        Args:
            sample: The key columns, sortable, of rows picked evenly; the first has no nulls.
            directions: Of each column.
            lanes: How many; 1 or more.
            each: Ranges of a lane; 1 or more.
        """
        order = pa.array(order_of(sample, directions))
        first = sample[0].take(order)
        outer = _cuts(first, lanes)
        cuts = pa.array(_cut_again(outer, len(first), each))
        bounds = [column.take(order).take(cuts) for column in sample]
        ladders = tuple(Ladder.of(column) for column in bounds)
        states: list[Codes] = []
        state: Codes = np.zeros(len(cuts), np.int64)
        for ladder, direction, column in zip(ladders, directions, bounds, strict=True):
            step = _step(state, ladder, direction, column)
            states.append(np.unique(step))
            state = _among(states[-1], step)
        begins = np.unique(1 + state[np.isin(cuts, outer)] // 2)  # the first range of each lane but the first
        edges = [0, *begins.tolist(), len(states[-1]) + 1]
        return cls(tuple(directions), ladders, tuple(states), tuple(range(*edge) for edge in pairwise(edges)))

    @classmethod
    def one(cls) -> Self:
        """The only range."""
        return cls((), (), (), (range(1),))

    def __len__(self) -> int:
        return self.lanes[-1].stop

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


def _cut_again(cuts: Codes, rows: int, each: int) -> Codes:
    """The same cuts and some between them, so that each lane has so many ranges."""
    edges = np.concatenate(([0], cuts, [rows]))
    shares = np.arange(each) / each
    found = (edges[:-1, None] + np.diff(edges)[:, None] * shares).astype(np.int64).ravel()
    return np.unique(found[found > 0])


def _changes(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value but the first differs from the one before it, for a column without nulls."""
    return pc.not_equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
