"""Where values lie among a few sorted ones, by the column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ladder:
    """Distinct sortable values (:func:`workers.sorting.sort_keys.sortable`), ascending: integers or binaries."""

    rungs: pa.Array

    @classmethod
    def of(cls, values: pa.Array) -> Self:
        """The distinct values of an array, nulls left out."""
        found = comparable(values).unique().drop_null()
        return cls(found.take(pc.sort_indices(found)))

    def __len__(self) -> int:
        return len(self.rungs)

    @property
    def top(self) -> int:
        """The greatest code."""
        return 2 * len(self.rungs)

    def codes(self, values: pa.Array) -> Codes:
        """Twice the number of rungs below each value, one more where it is on a rung; anything where it is null.

        So codes compare as values do, as far as the rungs tell them apart.
        """
        array = comparable(values)
        if not len(self.rungs) or not len(array):
            return np.zeros(len(array), np.int64)
        if pa.types.is_binary(array.type):
            return _codes_of_bytes(self.rungs, array)
        rungs = self.rungs.to_numpy()
        numbers = (array.fill_null(0) if array.null_count else array).to_numpy()
        below: Codes = np.searchsorted(rungs, numbers, "left").astype(np.int64)
        return _doubled(below, rungs[np.minimum(below, len(rungs) - 1)] == numbers)


def comparable(array: pa.Array) -> pa.Array:
    """A sortable array as integers or as binaries."""
    if pa.types.is_string(array.type):
        return array.view(pa.binary())
    return array.cast(pa.int32()) if pa.types.is_boolean(array.type) else array


def _codes_of_bytes(rungs: pa.Array, array: pa.Array) -> Codes:
    filled = array.fill_null(b"") if array.null_count else array
    low: Codes = np.zeros(len(filled), np.int64)
    high: Codes = np.full(len(filled), len(rungs), np.int64)
    for _ in range(len(rungs).bit_length()):  # rungs[:low] are below each value, rungs[high:] are not
        middle = (low + high) // 2
        less = _told(pc.less(rungs.take(pa.array(np.minimum(middle, len(rungs) - 1))), filled)) & (low < high)
        low, high = np.where(less, middle + 1, low), np.where(less, high, middle)
    on = _told(pc.equal(rungs.take(pa.array(np.minimum(low, len(rungs) - 1))), filled))
    return _doubled(low, on)


def _doubled(below: Codes, on: npt.NDArray[np.bool_]) -> Codes:
    codes: Codes = 2 * below + on.astype(np.int64)
    return codes


def _told(array: pa.Array) -> npt.NDArray[Any]:
    return array.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
