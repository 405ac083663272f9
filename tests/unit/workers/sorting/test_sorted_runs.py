"""Sorted runs and what is read back from them, without Spark."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from producer.model.plan import Scope, SortKey, Strategy
from tests.support.rewriteunit import rewrite_unit
from workers.arrow.schema import arrow_schema
from workers.model.units import RewriteUnit
from workers.sorting.ranges import Ranges
from workers.sorting.sort_keys import Direction, RowKeys
from workers.sorting.sorted_runs import RunMerger, SortedRun, SortedRunWriter
from workers.sorting.sorter import RowSorter, row_number

_SCHEMA = Schema(
    NestedField(1, "key", LongType(), required=False), NestedField(2, "body", BinaryType(), required=False)
)
_ROWS = arrow_schema(_SCHEMA)
_UNIT = rewrite_unit(
    files=2,
    schema=_SCHEMA,
    strategy=Strategy.SORT,
    order=(SortKey(field_id=1, transform="identity", descending=False, nulls_first=True),),
    scopes=(Scope(spec_id=0, values=("b",), label="p=b"), Scope(spec_id=0, values=("a",), label="p=a")),
)


def _sorter(ranges: Ranges) -> RowSorter:
    return RowSorter(RowKeys.of(_UNIT, _ROWS), None, ranges, _ROWS)


def _rows(keys: list[int], width: int = 10) -> pa.RecordBatch:
    bodies = [str(key).encode().rjust(width) for key in keys]
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.int64()), pa.array(bodies, pa.binary())], schema=_ROWS)


def _run(
    path: Path, unit: RewriteUnit, batches: list[tuple[int, pa.RecordBatch]], ranges: Ranges, most: int
) -> SortedRun:
    start = 0
    with SortedRunWriter(path, _sorter(ranges), most) as writer:
        for file, batch in batches:
            writer.add(unit.inputs[file], batch, row_number(int(path.stem), start))
            start += len(batch)
        return writer.close()


def test_partitions_come_one_after_another_each_in_order(tmp_path: Path) -> None:
    """Runs that number partitions in other ways."""
    one = _run(tmp_path / "1", _UNIT, [(0, _rows([5, 1])), (1, _rows([3, 9]))], Ranges.one(), 1 << 20)
    two = _run(tmp_path / "2", _UNIT, [(1, _rows([4])), (0, _rows([5, 0]))], Ranges.one(), 1 << 20)
    assert one.texts == ("b", "a")
    assert two.texts == ("a", "b")
    assert one.rows == {(0, "a"): 2, (0, "b"): 2}
    found = list(RunMerger(_sorter(Ranges.one()), [two, one], 1 << 20).read(range(1)))
    assert [(text, rows["key"].to_pylist()) for text, rows in found] == [("a", [3, 4, 9]), ("b", [0, 1, 5, 5])]


@pytest.mark.parametrize("most", [1, 3_000, 1 << 20])
def test_sweeps_of_any_size_and_many_ranges(tmp_path: Path, most: int) -> None:
    some = np.random.default_rng(1)
    keys = some.integers(0, 500, 1000)
    sample = [pa.repeat("b", 1000), pa.array(keys), pa.array(np.arange(1000) + row_number(1, 0))]
    ranges = Ranges.of(sample, [Direction()] * 3, 3, 4)
    assert [len(task) for task in ranges.tasks] == [4, 4, 4]
    batches = [(0, _rows(keys[start : start + 50].tolist())) for start in range(0, 1000, 50)]
    run = _run(tmp_path / "1", _UNIT, batches, ranges, most)
    assert set(run.batches) == set(range(12))
    assert sorted(number for number, _ in run.rows) == list(range(12))
    assert min(run.rows.values()) > 60
    merge = RunMerger(_sorter(ranges), [run], 500)
    found = [rows for task in ranges.tasks for _, rows in merge.read(task)]
    assert np.concatenate([rows["key"].to_numpy() for rows in found]).tolist() == sorted(keys.tolist())
    bodies = [body.strip() for rows in found for body in rows["body"].to_pylist()]
    assert bodies == [str(key).encode() for key in sorted(keys.tolist())]


def test_slices_are_cut_where_rows_are_wide(tmp_path: Path) -> None:
    narrow = [(0, _rows(list(range(0, 4000, 2)))), (0, _rows([9001, 9003], 100_000))]
    wide = [(0, _rows(list(range(1, 4000, 2)))), (0, _rows([9000, 9002, 9004], 100_000))]
    runs = [_run(tmp_path / str(n), _UNIT, rows, Ranges.one(), 1 << 30) for n, rows in ((1, narrow), (2, wide))]
    found = [rows for _, rows in RunMerger(_sorter(Ranges.one()), runs, 60_000).read(range(1))]
    assert np.concatenate([rows["key"].to_numpy() for rows in found]).tolist() == [*range(4000), *range(9000, 9005)]
    assert max(rows.nbytes for rows in found) < 130_000


def test_nothing_at_all(tmp_path: Path) -> None:
    run = _run(tmp_path / "1", _UNIT, [], Ranges.one(), 1)
    assert (run.texts, run.batches, run.rows) == ((), (), {})
    assert list(RunMerger(_sorter(Ranges.one()), [run], 1).read(range(1))) == []
