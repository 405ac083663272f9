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

from workers.arrow.fields import to_numpy
from workers.sorting.sort_keys import Direction, Numbers, append_codes, comparable, sort_indices

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

    def codes(self, values: pa.Array) -> Numbers:
        """Return twice the number of points below each value, one more where it equals a point; undefined for null.

        So codes compare as values do, as far as the points tell them apart.
        """
        array = comparable(values)
        if not len(self.points) or not len(array):
            return np.zeros(len(array), np.int64)
        if pa.types.is_binary(array.type):
            return _codes_of_bytes(self.points, array)
        return _codes_among(self.points.to_numpy(), to_numpy(array))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consecutive ranges of the order of some key columns. Rows that compare equal are in the same one."""

    directions: tuple[Direction, ...]
    #: The boundaries' distinct values in each column.
    split_points: tuple[SplitPoints, ...]
    #: For each column, what the boundaries' first columns up to this one amount to: distinct, ascending.
    states: tuple[Numbers, ...]
    #: The ranges that each task writes: one after another, none empty.
    tasks: tuple[range, ...]

    @classmethod
    def of(cls, sample: Sequence[pa.Array], directions: Sequence[Direction], tasks: int, each: int = 1) -> Self:
        """Return ranges of about equal numbers of rows by a sample; fewer where there are few rows.

        Where values of the first column begin near the boundary of a task, the boundary is moved there.

        Args:
            sample: The key columns, sortable, of rows picked evenly; the first has no nulls.
            directions: How each column is sorted.
            tasks: The number of tasks; 1 or more.
            each: The number of ranges of a task; 1 or more.
        """
        order = pa.array(sort_indices(sample, directions))
        first = sample[0].take(order)
        outer = _cuts(first, tasks)
        cuts = pa.array(_cut_again(outer, len(first), each))
        bounds = [column.take(order).take(cuts) for column in sample]
        split_points = tuple(SplitPoints.of(column) for column in bounds)
        states: list[Numbers] = []
        state: Numbers = np.zeros(len(cuts), np.int64)
        for points, direction, column in zip(split_points, directions, bounds, strict=True):
            step = append_codes(state, points.codes(column), points.top, direction, column)
            states.append(np.unique(step))
            state = _codes_among(states[-1], step)
        begins = np.unique(1 + state[np.isin(cuts, outer)] // 2)  # the first range of each task but the first
        edges = [0, *begins.tolist(), len(states[-1]) + 1]
        return cls(tuple(directions), split_points, tuple(states), tuple(range(*edge) for edge in pairwise(edges)))

    @classmethod
    def one(cls) -> Self:
        """Return a single range of all rows."""
        return cls((), (), (), (range(1),))

    def __len__(self) -> int:
        return self.tasks[-1].stop

    def of_rows(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int32]:
        """Return the range of each row: a row on a boundary belongs to the range that begins there."""
        state: Numbers = np.zeros(len(columns[0]), np.int64)
        for known, points, direction, column in zip(
            self.states, self.split_points, self.directions, columns, strict=True
        ):
            state = _codes_among(known, append_codes(state, points.codes(column), points.top, direction, column))
        return ((state + 1) // 2).astype(np.int32)


def _codes_among(points: npt.NDArray[Any], values: npt.NDArray[Any]) -> Numbers:
    """Return twice the number of points below each value, one more where it equals a point."""
    below: Numbers = np.searchsorted(points, values, "left").astype(np.int64)
    return _code(below, points[np.minimum(below, len(points) - 1)] == values) if len(points) else below


def _cuts(first: pa.Array, number: int) -> Numbers:
    """Return the rows of a sorted sample that begin the second range and those after it."""
    rows = len(first)
    if rows < 2 or number < 2:
        return np.zeros(0, np.int64)
    cuts = np.arange(1, number) * rows // number
    changes = 1 + np.flatnonzero(to_numpy(pc.not_equal(first[1:], first[:-1])))
    if changes.size:
        after = np.searchsorted(changes, cuts)
        near = np.stack((changes[np.maximum(after - 1, 0)], changes[np.minimum(after, len(changes) - 1)]))
        nearest = near[np.argmin(np.abs(near - cuts), axis=0), np.arange(len(cuts))]
        cuts = np.where(np.abs(nearest - cuts) <= _SLACK * rows / number, nearest, cuts)
    return np.unique(cuts[cuts > 0])


def _cut_again(cuts: Numbers, rows: int, each: int) -> Numbers:
    """Return the same cuts and some between them, so that each task has ``each`` ranges."""
    edges = np.concatenate(([0], cuts, [rows]))
    shares = np.arange(each) / each
    found = (edges[:-1, None] + np.diff(edges)[:, None] * shares).astype(np.int64).ravel()
    return np.unique(found[found > 0])


def _codes_of_bytes(points: pa.Array, array: pa.Array) -> Numbers:
    filled = array.fill_null(b"") if array.null_count else array
    low: Numbers = np.zeros(len(filled), np.int64)
    high: Numbers = np.full(len(filled), len(points), np.int64)
    for _ in range(len(points).bit_length()):  # points[:low] are below each value, points[high:] are not
        middle = (low + high) // 2
        less = to_numpy(pc.less(points.take(pa.array(np.minimum(middle, len(points) - 1))), filled)) & (low < high)
        low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
    on = to_numpy(pc.equal(points.take(pa.array(np.minimum(low, len(points) - 1))), filled))
    return _code(low, on)


def _code(below: Numbers, on: npt.NDArray[np.bool_]) -> Numbers:
    codes: Numbers = 2 * below + on.astype(np.int64)
    return codes
