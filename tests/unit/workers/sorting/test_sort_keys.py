"""Rows in order by several columns, judged by Python's own sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.sorting.sort_keys import Direction, sort_indices

_DIRECTIONS = st.builds(Direction, st.booleans(), st.booleans())
_LONGS = st.sampled_from([-(1 << 63), -(1 << 40), -1, 0, 1, 2, 1 << 40, (1 << 63) - 1]) | st.none()
_KINDS = {
    pa.int64(): _LONGS,
    pa.int32(): st.integers(-3, 3) | st.none(),
    pa.bool_(): st.booleans() | st.none(),
    pa.string(): st.sampled_from(["", "a", "a\0", "ä", "Ω", "\U0001f600"]) | st.none(),
    pa.binary(): st.sampled_from([b"", b"\0", b"\xff", b"ab"]) | st.none(),
}


@st.composite
def _columns(draw: st.DrawFn) -> list[tuple[pa.ChunkedArray, Direction]]:
    rows = draw(st.integers(0, 12))
    cut = draw(st.integers(0, rows))
    types = draw(st.lists(st.sampled_from(list(_KINDS)), max_size=4))
    found = []
    for type_ in types:
        values = draw(st.lists(_KINDS[type_], min_size=rows, max_size=rows))
        chunks = [pa.array(values[:cut], type_), pa.array(values[cut:], type_)]
        found.append((pa.chunked_array(chunks), draw(_DIRECTIONS)))
    return [*found, (pa.chunked_array([pa.array(draw(st.permutations(range(rows))), pa.int64())]), Direction())]


@given(_columns())
def test_order_is_that_of_python(columns: list[tuple[pa.ChunkedArray, Direction]]) -> None:
    expected = list(range(len(columns[0][0])))
    for column, direction in reversed(columns):
        values = column.to_pylist()
        present = [row for row in expected if values[row] is not None]
        nulls = [row for row in expected if values[row] is None]
        key = lambda row, values=values: values[row].encode() if isinstance(values[row], str) else values[row]  # noqa: E731
        present.sort(key=key, reverse=direction.descending)  # equal ones stay as they are either way
        expected = nulls + present if direction.nulls_first else present + nulls
    assert sort_indices([column for column, _ in columns], [direction for _, direction in columns]).tolist() == expected


@pytest.mark.parametrize("columns", [1, 3, 8])
def test_numbers_that_do_not_fit_together(columns: int) -> None:
    """The numbers of a row become too many to count, again and again."""
    some = np.random.default_rng(columns)
    wide: list[Any] = [some.choice(some.integers(-(1 << 63), 1 << 62, 9), 5000) for _ in range(columns)]
    place = np.arange(5000)
    order = sort_indices([*map(pa.array, wide), pa.array(place)], [Direction()] * (columns + 1))
    assert order.tolist() == np.lexsort([place, *wide[::-1]]).tolist()
