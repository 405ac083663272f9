"""Ranges of rows: boundaries from a sample of the keys, and the range of each row, a whole column at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.sorting.ranks import Direction, order_of

Codes = npt.NDArray[np.int64]

#: How far a boundary may be moved to where the first column changes, in parts of a range.
_SLACK: Final = 0.25


@dataclass(frozen=True, slots=True)
class SplitPoints:
    """Distinct values of one sortable column (:func:`workers.sorting.sort_keys.sortable`), ascending."""

    #: Integers or binaries.
    points: pa.Array

    @classmethod
    def of(cls, values: pa.Array) -> Self:
        """Return the distinct values of an array without nulls."""
        found = comparable(values).unique().drop_null()
        return cls(found.take(pc.sort_indices(found)))

    def __len__(self) -> int:
        return len(self.points)

    @property
    def top(self) -> int:
        """The greatest code."""
        return 2 * len(self.points)

    def codes(self, values: pa.Array) -> Codes:
        """Return twice the number of points below each value, one more where it equals a point; undefined for null.

        So codes compare as values do, as far as the points tell them apart.
        """
        array = comparable(values)
        if not len(self.points) or not len(array):
            return np.zeros(len(array), np.int64)
        if pa.types.is_binary(array.type):
            return _codes_of_bytes(self.points, array)
        points = self.points.to_numpy()
        numbers = (array.fill_null(0) if array.null_count else array).to_numpy()
        below: Codes = np.searchsorted(points, numbers, "left").astype(np.int64)
        return _code(below, points[np.minimum(below, len(points) - 1)] == numbers)


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges of the order of some key columns. Rows that compare equal are in the same one."""

    directions: tuple[Direction, ...]
    #: The boundaries' distinct values in each column.
    split_points: tuple[SplitPoints, ...]
    #: For each column, what the boundaries' first columns up to this one amount to: distinct, ascending.
    states: tuple[Codes, ...]
    #: The ranges of each lane: one after another, none empty.
    lanes: tuple[range, ...]

    @classmethod
    def of(cls, sample: Sequence[pa.Array], directions: Sequence[Direction], lanes: int, each: int = 1) -> Self:
        """Return lanes of about equal numbers of rows by a sample, each cut into ``each`` ranges; fewer for few rows.

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
        split_points = tuple(SplitPoints.of(column) for column in bounds)
        states: list[Codes] = []
        state: Codes = np.zeros(len(cuts), np.int64)
        for points, direction, column in zip(split_points, directions, bounds, strict=True):
            step = _step(state, points, direction, column)
            states.append(np.unique(step))
            state = _among(states[-1], step)
        begins = np.unique(1 + state[np.isin(cuts, outer)] // 2)  # the first range of each lane but the first
        edges = [0, *begins.tolist(), len(states[-1]) + 1]
        return cls(tuple(directions), split_points, tuple(states), tuple(range(*edge) for edge in pairwise(edges)))

    @classmethod
    def one(cls) -> Self:
        """Return a single range of all rows."""
        return cls((), (), (), (range(1),))

    def __len__(self) -> int:
        return self.lanes[-1].stop

    def of_rows(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        """Return the range of each row: a row on a boundary belongs to the range that begins there."""
        state: Codes = np.zeros(len(columns[0]), np.int64)
        for known, points, direction, column in zip(
            self.states, self.split_points, self.directions, columns, strict=True
        ):
            state = _among(known, _step(state, points, direction, column))
        return ((state + 1) // 2).astype(np.int32)


def _step(state: Codes, points: SplitPoints, direction: Direction, column: pa.Array) -> Codes:
    """Return a number for each row that orders rows by the columns of ``state`` first and then by one more."""
    codes = points.codes(column)
    if direction.descending:
        codes = points.top - codes
    codes += 1
    if column.null_count:
        codes[pc.is_null(column).to_numpy(zero_copy_only=False)] = 0 if direction.nulls_first else points.top + 2
    return state * (points.top + 3) + codes


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


def comparable(array: pa.Array) -> pa.Array:
    """Return a sortable array as integers or as binaries."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.cast(pa.int32()) if pa.types.is_boolean(array.type) else array


def _codes_of_bytes(points: pa.Array, array: pa.Array) -> Codes:
    filled = array.fill_null(b"") if array.null_count else array
    low: Codes = np.zeros(len(filled), np.int64)
    high: Codes = np.full(len(filled), len(points), np.int64)
    for _ in range(len(points).bit_length()):  # points[:low] are below each value, points[high:] are not
        middle = (low + high) // 2
        less = _to_numpy(pc.less(points.take(pa.array(np.minimum(middle, len(points) - 1))), filled)) & (low < high)
        low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
    on = _to_numpy(pc.equal(points.take(pa.array(np.minimum(low, len(points) - 1))), filled))
    return _code(low, on)


def _code(below: Codes, on: npt.NDArray[np.bool_]) -> Codes:
    codes: Codes = 2 * below + on.astype(np.int64)
    return codes


def _to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
