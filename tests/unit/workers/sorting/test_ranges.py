"""Keys of sort orders and ranges of rows, judged by a plain comparator."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform, IdentityTransform, MonthTransform, Transform, TruncateTransform

from producer.model.plan import SortKey
from tests.support.rewriteunit import SCHEMA
from tests.support.rows import EVERYTHING, everything
from tests.support.sorting import in_order
from workers.arrow.fields import Accessor
from workers.sorting.ranges import Ranges, SplitPoints
from workers.sorting.sort_keys import Direction, SortFieldKey, sort_indices, sortable

_KEYS: list[tuple[int, Transform[Any, Any]]] = [
    *((field_id, IdentityTransform()) for field_id in [*range(2, 20), 21, 32]),
    (15, TruncateTransform(1)),
    (8, TruncateTransform(7)),
    (16, BucketTransform(5)),
    (9, MonthTransform()),
]


@pytest.mark.parametrize(("field_id", "transform"), _KEYS, ids=str)
@pytest.mark.parametrize(("descending", "nulls_first"), [*itertools.product([False, True], repeat=2)])
def test_keys_of_every_type_in_the_order_that_the_spec_asks_for(
    field_id: int, transform: Transform[Any, Any], descending: bool, nulls_first: bool
) -> None:
    rows = everything(400, seed=field_id)
    if isinstance(transform, MonthTransform):  # the judge's dates end with the year 9999
        days = pa.array(range(-20_000, 20_000, 100), pa.date32())
        rows = rows.set_column(8, rows.schema.field(8), pa.array([None, *days[1:].to_pylist()], pa.date32()))
    order = (
        SortKey(field_id=field_id, transform=str(transform), descending=descending, nulls_first=nulls_first),
        SortKey(field_id=7, transform="identity", descending=not descending, nulls_first=not nulls_first),
    )
    keys = [SortFieldKey.of(column, SCHEMA, EVERYTHING) for column in order]
    arrays = [key.of_rows(rows) for key in keys]
    directions = [Direction(column.descending, column.nulls_first) for column in order]
    place = pa.array(np.arange(len(rows)))
    each = Ranges.of([place, *arrays], [Direction()] * (1 + len(arrays)), len(rows))
    assert each.of_rows([place, *arrays]).tolist() == list(range(len(rows)))

    first = pa.repeat("", len(rows))
    columns, directed = [first, *arrays, place], [Direction(), *directions, Direction()]
    expected = in_order(pa.Table.from_batches([rows]), SCHEMA, order)
    # As many ranges as rows: the number of its range is a row's rank.
    ranges = Ranges.of(columns, directed, len(rows))
    assert np.argsort(ranges.of_rows(columns)).tolist() == expected
    few = Ranges.of(columns, directed, 7).of_rows(columns)
    assert few[expected].tolist() == sorted(few.tolist())
    assert np.bincount(few).min() > len(rows) // 8
    assert sort_indices(columns, directed).tolist() == expected


def test_rows_that_are_not_in_the_sample() -> None:
    rows = everything(3000, seed=3)
    order = (
        SortKey(field_id=15, transform="identity", descending=True, nulls_first=False),
        SortKey(field_id=6, transform="identity", descending=False, nulls_first=True),
    )
    arrays = [SortFieldKey.of(column, SCHEMA, EVERYTHING).of_rows(rows) for column in order]
    directions = [Direction(True, False), Direction(False, True)]
    every_tenth = pa.array(range(0, 3000, 10))
    first, place = pa.repeat("", 3000), pa.array(np.arange(3000))
    columns, directed = [first, *arrays, place], [Direction(), *directions, Direction()]
    found = Ranges.of([column.take(every_tenth) for column in columns], directed, 8).of_rows(columns)
    expected = in_order(pa.Table.from_batches([rows]), SCHEMA, order)
    assert found[expected].tolist() == sorted(found.tolist())
    assert len(set(found.tolist())) == 8


def test_boundaries_move_to_where_a_partition_begins_near_by() -> None:
    parts = pa.array(["a"] * 240 + ["b"] * 260 + ["c"] * 500)
    place = pa.array(np.arange(1000))
    found = Ranges.of([parts, place], [Direction(), Direction()], 4).of_rows([parts, place])
    assert np.bincount(found).tolist() == [240, 260, 250, 250]


def test_tasks_of_several_ranges_begin_where_a_partition_does() -> None:
    parts = pa.array(["a"] * 240 + ["b"] * 760)
    place = pa.array(np.arange(1000))
    ranges = Ranges.of([parts, place], [Direction(), Direction()], 4, 3)
    assert ranges.tasks == (range(3), range(3, 6), range(6, 9), range(9, 12))
    counts = np.bincount(ranges.of_rows([parts, place])).tolist()
    assert counts == [80, 80, 80, 86, 87, 87, 83, 83, 84, 83, 83, 84]


def test_fewer_rows_than_tasks() -> None:
    columns = [pa.array(["a", "a"]), pa.array([1, 2])]
    ranges = Ranges.of(columns, [Direction(), Direction()], 5, 3)
    assert ranges.tasks == (range(1), range(1, 2))
    assert ranges.of_rows(columns).tolist() == [0, 1]


def test_one_range_and_no_rows() -> None:
    empty = [pa.array([], pa.string()), pa.array([], pa.int64())]
    ranges = Ranges.of(empty, [Direction(), Direction()], 5)
    assert len(ranges) == 1
    assert ranges.of_rows(empty).tolist() == []
    assert ranges.of_rows([pa.array(["x"]), pa.array([1])]).tolist() == [0]


@pytest.mark.parametrize("values", [[b"", b"a", b"a\0", b"\xff", None, b"\xff\xff"], [3, None, -1, 7, 7, 0]])
@pytest.mark.parametrize("points", range(7))
def test_codes_tell_below_on_and_between(values: list[Any], points: int) -> None:
    kind = pa.binary() if isinstance(values[0], bytes) else pa.int64()
    split_points = SplitPoints.of(pa.array(values[:points], kind))
    known = sorted({value for value in values[:points] if value is not None})
    kept = [value for value in values if value is not None]
    codes = split_points.codes(pa.array(kept)).tolist()
    assert codes == [2 * sum(rung < value for rung in known) + (value in known) for value in kept]


def test_columns_without_a_single_value_are_refused() -> None:
    for field_id in (20, 23, 28, 31):
        with pytest.raises(ValueError, match=r"not a primitive|no single value"):
            Accessor.of(field_id, SCHEMA, EVERYTHING)


def test_nulls_around_a_column_are_nulls_of_it() -> None:
    rows = everything(100)
    expected = [None if value is None else value["map"] for value in rows.column(21).to_pylist()]
    found = Accessor.of(32, SCHEMA, EVERYTHING).column(rows)
    assert [None if value is None else str(value) for value in found.to_pylist()] == [
        None if value is None else str(value) for value in expected
    ]
    assert sortable(found).null_count == expected.count(None)
