"""A z-order keeps rows together that are near in several columns, whatever the columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from producer.model.plan import SortKey
from tests.support.rewriteunit import SCHEMA
from tests.support.rows import EVERYTHING, everything
from tests.support.sorting import in_order
from workers.arrow.fields import Accessor
from workers.sorting.sort_keys import sortable
from workers.sorting.zorder import Curve, spread_bits

_ROWS = 1 << 15
_FILES = 16


def _naive(positions: Sequence[int], bits: int) -> int:
    """The first bit of each position, then the second of each, …"""
    digits = [format(position, f"0{bits}b") for position in positions]
    return int("".join("".join(bit) for bit in zip(*digits, strict=True)), 2)


@pytest.mark.parametrize(("axes", "bits"), [(1, 12), (2, 12), (3, 12), (5, 12), (7, 8), (62, 1)])
def test_bits_are_interleaved(axes: int, bits: int) -> None:
    some = np.random.default_rng(axes)
    positions = some.integers(0, 1 << bits, (axes, 200))
    found = np.zeros(200, np.int64)
    for axis in range(axes):
        found |= spread_bits(positions[axis], bits, axis, axes)
    assert found.tolist() == [_naive(row, bits) for row in positions.T.tolist()]


def _column(kind: str) -> pa.Array:
    """Columns that a z-order of plain values would fail on, of independent rows."""
    some = np.random.default_rng(sum(kind.encode()))
    uniform = some.random(_ROWS)
    return {
        "long": lambda: pa.array((uniform * 1e6).astype(np.int64)),
        "wide": lambda: pa.array(((uniform - 0.5) * 2**63).astype(np.int64)),
        "skewed": lambda: pa.array(np.where(uniform < 0.9, 0, uniform * 1e9).astype(np.int64)),
        "exponential": lambda: pa.array(-np.exp(uniform * 300)),
        "prefixed": lambda: pa.array([f"https://example.org/some/long/path/{value:.12f}" for value in uniform]),
        "few": lambda: pa.array(some.permutation(_ROWS) % 4),
        "nulls": lambda: pa.array((uniform * 1e6).astype(np.int64), mask=uniform < 0.5),
        "date": lambda: pa.array((uniform * 3650).astype(np.int32)).cast(pa.date32()),
    }[kind]()


def _skipped(order: npt.NDArray[np.int64], column: pa.Array) -> float:
    """Of files of equal size, how many need not be read for a range of a sixteenth of the rows; the mean of all.

    Ranges that one value fills are left out: it is in most files, however they are ordered.
    """
    values = pc.rank(column, tiebreaker="min").to_numpy().astype(np.int64)
    files, asked = values[order].reshape(_FILES, -1), np.sort(values).reshape(_FILES, -1)
    asked = asked[asked[:, 0] < asked[:, -1]] if (asked[:, 0] < asked[:, -1]).any() else asked
    hit = (files.min(axis=1) <= asked[:, -1:]) & (files.max(axis=1) >= asked[:, :1])
    return float(1 - hit.mean())


@pytest.mark.parametrize(
    ("first", "second"),
    [("long", "wide"), ("skewed", "long"), ("prefixed", "exponential"), ("nulls", "date"), ("prefixed", "few")],
)
def test_files_are_skipped_for_ranges_of_either_column(first: str, second: str) -> None:
    columns = [_column(first), _column(second)]
    keys = [sortable(column) for column in columns]
    sample = pa.array(range(0, _ROWS, 8))
    curve = Curve.of([key.take(sample) for key in keys])
    zorder = np.argsort(curve.of_rows(keys).to_numpy(), kind="stable")
    interleaved = [_skipped(zorder, column) for column in columns]
    for by in (0, 1):
        order = pc.sort_indices(columns[by]).to_numpy().astype(np.int64)
        sorted_by_one = [_skipped(order, column) for column in columns]
        other = 1 - by
        assert sorted_by_one[other] < 0.2  # a sort by one column is no help for the other
        assert interleaved[other] > 0.4, interleaved
    assert min(interleaved) > 0.4


_TYPES = [*range(2, 19), 21, 32]


@pytest.mark.parametrize("field_id", _TYPES)
def test_positions_are_monotone_in_values_of_every_type_nulls_first(field_id: int) -> None:
    rows, sample = everything(600, seed=1), everything(300, seed=2)
    source = Accessor.of(field_id, SCHEMA, EVERYTHING)
    curve = Curve.of([sortable(source.column(sample))])
    numbers = dict(zip(rows["id"].to_pylist(), curve.of_rows([sortable(source.column(rows))]).to_pylist(), strict=True))
    order = in_order(
        pa.Table.from_batches([rows]),
        SCHEMA,
        [SortKey(field_id=field_id, transform="identity", descending=False, nulls_first=True)],
    )
    found = [numbers[id_] for id_ in order]
    assert found == sorted(found)
    assert len(set(found)) > 1
    own = Curve.of([sortable(source.column(rows))])
    again = own.of_rows([sortable(source.column(rows))]).to_pylist()
    assert len(set(again)) == len(set(map(str, sortable(source.column(rows)).to_pylist())))


def test_a_column_of_nulls_takes_nothing_from_the_others() -> None:
    column = _column("long")
    curve = Curve.of([pa.nulls(_ROWS, pa.bool_()), column])
    order = np.argsort(curve.of_rows([pa.nulls(_ROWS, pa.bool_()), column]).to_numpy(), kind="stable")
    assert _skipped(order, column) > 0.9


@pytest.mark.parametrize("columns", [0, 63])
def test_too_few_and_too_many_columns(columns: int) -> None:
    with pytest.raises(ValueError, match="1 to 62 columns"):
        Curve.of([pa.array([1])] * columns)


def test_an_empty_sample() -> None:
    empty: list[Any] = [pa.array([], pa.int64()), pa.array([], pa.binary())]
    assert Curve.of(empty).of_rows([pa.array([1, None]), pa.array([b"a", b"b"])]).to_pylist() == [0, 0]
