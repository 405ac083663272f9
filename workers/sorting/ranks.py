"""The order of rows by several columns: each column as small numbers, all of a row's together as one, sorted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]

#: Numbers of a row stay below it.
_MOST: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Direction:
    """How one key column is sorted."""

    descending: bool = False
    nulls_first: bool = True


def order_of(columns: Sequence[pa.Array | pa.ChunkedArray], directions: Sequence[Direction]) -> Numbers:
    """Indexes of rows in order.

    Args:
        columns: Sortable (:func:`workers.sorting.sort_keys.sortable`), all of one length; the last tells apart what
            the others do not, or any order of rows that compare equal will do.
        directions: Of each column.
    """
    state: Numbers = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column, direction in zip(columns, directions, strict=True):
        chunked = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
        steps, top = _steps(chunked, _MOST // size - 3)
        if size * (top + 3) > _MOST:
            state, size = _dense(state)
        if direction.descending:
            steps = top - steps
        steps += 1
        if chunked.null_count:
            steps[pc.is_null(chunked).to_numpy()] = 0 if direction.nulls_first else top + 2
        state = state * (top + 3) + steps
        size *= top + 3
    return np.argsort(state).astype(np.int64, copy=False)


def _steps(column: pa.ChunkedArray, most: int) -> tuple[Numbers, int]:
    """Numbers from 0 that compare as values do, anything for nulls, and the greatest: ``most`` if that can be."""
    if column.null_count == len(column):
        return np.zeros(len(column), np.int64), 0
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return _steps_of_bytes(column)
    values = _integers(column)
    low, high = (bound.as_py() for bound in pc.min_max(column.cast(pa.int64())).values())
    if high - low <= most:
        steps: Numbers = values - low
        return steps, high - low
    steps, size = _dense(values)
    return steps, size - 1


def _steps_of_bytes(column: pa.ChunkedArray) -> tuple[Numbers, int]:
    # 64-bit offsets, for there may be more than 2 GB of them.
    encoded = column.cast(pa.large_binary()).dictionary_encode().unify_dictionaries()
    values = encoded.chunk(0).dictionary
    ranks = np.empty(len(values), np.int64)
    ranks[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    indexes = [chunk.indices for chunk in encoded.chunks]
    return ranks[_integers(pa.chunked_array(indexes))], len(values) - 1


def _integers(column: pa.ChunkedArray) -> Numbers:
    numbers = column.cast(pa.int64())
    found: npt.NDArray[Any] = (numbers.fill_null(0) if numbers.null_count else numbers).to_numpy()
    return found


def _dense(values: Numbers) -> tuple[Numbers, int]:
    """Values by their rank, equal ones alike, and how many ranks there are."""
    found, ranks = np.unique(values, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(found)
