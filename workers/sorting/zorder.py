"""Z-order: one number for each row whose order keeps rows together that are near in several columns.

A column counts by the *rank* of its values, not by the values: its position is the share of rows below it, going by a
sample, cut into at most 4096 steps. So neither long common prefixes nor skew nor a wide type lets one column dominate,
and a column of few values takes no bits from the others. Positions are monotone in the values, nulls first. Bits are
taken in turn, the first column's first. Rows of the same steps keep their order: two columns make 16 million cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa

from workers.arrow.fields import null_mask
from workers.sorting.ranges import SplitPoints
from workers.sorting.sort_keys import Numbers

#: Of one column's position, at most.
_BITS: Final = 12
#: Of all positions together: a positive long.
_ALL_BITS: Final = 62


@dataclass(frozen=True, slots=True)
class Axis:
    """One column of a curve: the bits that a value adds to the number, by its rank in the sample."""

    split_points: SplitPoints
    #: For values below all points and for nulls, then for those from each point on: the position's bits, spread.
    bits: Numbers

    @classmethod
    def of(cls, sample: pa.Array, bits: int, axis: int, axes: int) -> Self:
        """Return the axis of one of several columns, from a sortable sample of it, for positions of ``bits`` bits."""
        points = SplitPoints.of(sample)
        counts = np.bincount(points.codes(sample.drop_null()) // 2, minlength=len(points))
        below = sample.null_count + np.concatenate(([0], np.cumsum(counts)[:-1])) if len(points) else np.zeros(0)
        positions = (below.astype(np.int64) << bits) // max(1, len(sample))
        first = np.unique(positions, return_index=True)[1]  # one point for each step
        steps = np.concatenate(([0], positions[first]))
        return cls(SplitPoints(points.points.take(pa.array(first))), spread_bits(steps, bits, axis, axes))

    def of_rows(self, column: pa.Array) -> Numbers:
        """Return the bits that each value adds; never less for a greater value."""
        reached = (self.split_points.codes(column) + 1) // 2
        nulls = null_mask(column)
        if nulls is not None:
            reached[nulls] = 0
        return self.bits[reached]


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve through all columns of a z-order."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, sample: Sequence[pa.Array]) -> Self:
        """Return the curve for a sample of the columns.

        Raises:
            ValueError: there are no columns, or more than there are bits.
        """
        if not 1 <= len(sample) <= _ALL_BITS:
            raise ValueError(f"a z-order is of 1 to {_ALL_BITS} columns, not of {len(sample)}")
        bits = min(_BITS, _ALL_BITS // len(sample))
        return cls(tuple(Axis.of(column, bits, axis, len(sample)) for axis, column in enumerate(sample)))

    def of_rows(self, columns: Sequence[pa.Array]) -> pa.Array:
        """Return the number of each row."""
        number: Numbers = np.zeros(len(columns[0]), np.int64)
        for axis, column in zip(self.axes, columns, strict=True):
            number |= axis.of_rows(column)
        return pa.array(number)


def spread_bits(positions: Numbers, bits: int, axis: int, axes: int) -> Numbers:
    """Return positions with their bits moved apart, so that those of all axes are combined with ``|``."""
    found: Numbers = np.zeros(len(positions), np.int64)
    for bit in range(bits):
        found |= (positions >> bit & 1) << (bit * axes + axes - 1 - axis)
    return found
