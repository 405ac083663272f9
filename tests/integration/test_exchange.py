"""Rows through an exchange: bit by bit, in order, in the right partitions, in the same memory however many they are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyspark.sql import SparkSession

from producer.model.plan import Scope, SortKey, Strategy
from tests.support.rewriteunit import SCHEMA, rewrite_unit
from tests.support.rows import EVERYTHING, bitwise, everything
from tests.support.sorting import in_order
from workers.arrow.schema import arrow_schema
from workers.model.delete_set import FileSplit
from workers.model.units import RewriteUnit
from workers.runtime.context import Cancellation, LazySession, UnitContext
from workers.runtime.machine import Budget, Machine
from workers.sorting.exchange import Exchange, exchange_rows
from workers.sorting.sort_keys import key_fields, sortable

pytestmark = pytest.mark.spark

_ROWS = 700
_FILES = 5


@dataclass(frozen=True)
class Kept:
    """Rows that lie in files of Arrow's own format, which keeps everything."""

    schema: pa.Schema
    paths: list[Path]

    def read(self, split: FileSplit, /) -> Iterator[pa.RecordBatch]:
        with pa.ipc.open_file(str(self.paths[split.file.index])) as reader:
            for index in range(reader.num_record_batches):
                batch = reader.get_batch(index)
                columns = [_narrowed(batch.column(field.name), field.type) for field in self.schema]
                yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    read_uncounted = read


@dataclass(frozen=True)
class Case:
    """A unit and its rows."""

    unit: RewriteUnit
    rows: pa.Table
    made: Exchange

    def written(self) -> list[tuple[Scope, pa.RecordBatch]]:
        """What the write tasks get, one after another."""
        found = []
        for task in range(len(self.made.tasks)):
            mine = list(self.made.read(task))
            counts: Counter[Scope] = Counter()
            for partition, rows in mine:
                counts[partition] += len(rows)
            assert counts == self.made.rows(task)
            found += mine
        return found


def _case(
    session: SparkSession,
    folder: Path,
    tasks: int = 4,
    *,
    rows_bytes: int = 64 << 10,
    recorded_rows: int = _ROWS,
    **options: Any,
) -> Case:
    """An exchange of some thousand rows, in a memory that holds few of them; each file has so many by its record."""
    unit = rewrite_unit(files=_FILES, **options)
    full = [everything(_ROWS, seed) for seed in range(_FILES)]
    paths = []
    for index, rows in enumerate(full):
        rows = rows.set_column(0, EVERYTHING.field(0), pa.array(range(index * _ROWS, (index + 1) * _ROWS)))
        full[index] = rows
        paths.append(folder / f"{index}.arrow")
        with pa.ipc.new_file(str(paths[-1]), rows.schema) as writer:
            writer.write_table(pa.Table.from_batches([rows]), max_chunksize=150)
    budget = replace(Budget.of(Machine.detect(), cores=2), rows_bytes=rows_bytes, batch_bytes=16 << 10)
    made = exchange_rows(
        UnitContext(LazySession(session), PyArrowFileIO(), budget, folder, Cancellation()),
        unit,
        Kept(EVERYTHING, paths),
        Kept(arrow_schema(key_fields(unit)), paths),
        [FileSplit(replace(file, record_count=recorded_rows, size=1)) for file in unit.inputs],
        tasks,
    )
    return Case(unit, pa.Table.from_batches(full), made)


def _narrowed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Only those fields of a struct that a key schema has."""
    if not pa.types.is_struct(type_) or array.type.num_fields == type_.num_fields:
        return array
    children = [array.field(array.type.get_field_index(field.name)) for field in type_]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())


def _together(written: list[tuple[Scope, pa.RecordBatch]]) -> pa.Table:
    table = pa.Table.from_batches([rows for _, rows in written])
    assert table.schema.equals(EVERYTHING, check_metadata=True)
    return table


def _same_rows(one: pa.Table, other: pa.Table) -> None:
    other = other.sort_by("id").combine_chunks()
    one = one.combine_chunks()
    for before, after in zip(one.columns, other.columns, strict=True):
        assert bitwise(before.chunk(0)).equals(bitwise(after.chunk(0)))


#: One of each form that keys have; all types are sorted in the unit tests of ranges.
_KEYS: list[tuple[int, Transform[Any, Any]]] = [
    *((field_id, IdentityTransform()) for field_id in (2, 3, 6, 8, 14, 15, 16, 18, 21)),
    (15, TruncateTransform(1)),
    (4, BucketTransform(8)),
    (16, BucketTransform(3)),
]


@pytest.mark.parametrize(("number", "key"), [*enumerate(_KEYS)])
def test_sorted(spark: SparkSession, tmp_path: Path, number: int, key: tuple[int, Transform[Any, Any]]) -> None:
    descending, nulls_first = bool(number & 1), bool(number & 2)
    order = (
        SortKey(field_id=key[0], transform=str(key[1]), descending=descending, nulls_first=nulls_first),
        SortKey(field_id=7, transform="identity", descending=not descending, nulls_first=not nulls_first),
    )
    case = _case(spark, tmp_path, strategy=Strategy.SORT, order=order)
    table = _together(case.written())
    _same_rows(case.rows, table)
    assert table["id"].to_pylist() == in_order(case.rows, SCHEMA, order)


def test_routed_as_pyiceberg_transforms_row_by_row(spark: SparkSession, tmp_path: Path) -> None:
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "flag"),
        PartitionField(9, 1001, BucketTransform(2), "date_bucket"),
        PartitionField(15, 1002, TruncateTransform(1), "first"),
        spec_id=3,
    )
    known = Scope(spec_id=0, values=("01", None, "61"), label="flag=true/date_bucket=null/first=a")
    case = _case(spark, tmp_path, tasks=6, spec=spec, scopes=(None, known))
    written = case.written()
    _same_rows(case.rows, _together(written))
    schema = SCHEMA.as_struct()
    kinds = [schema.field(field.source_id).field_type for field in spec.fields]
    transforms = [field.transform.transform(kind) for field, kind in zip(spec.fields, kinds, strict=True)]
    expected: dict[tuple[Any, ...], list[int]] = {}
    plain = case.rows.select(["id", "flag", "date", "string"])
    plain = plain.set_column(2, "date", plain["date"].cast(pa.int32()))  # Python's dates end with the year 9999
    for row in plain.to_pylist():
        routed = case.unit.inputs[row["id"] // _ROWS].scope == 0
        values = [function(row[name]) for function, name in zip(transforms, ("flag", "date", "string"), strict=True)]
        expected.setdefault(tuple(values) if routed else (True, None, "a"), []).append(row["id"])
    found: dict[tuple[Any, ...], list[int]] = {}
    order: list[Scope] = []
    for partition, rows in written:
        flag, bucket, first = partition.values
        values = (
            None if flag is None else flag == "01",
            None if bucket is None else int.from_bytes(bytes.fromhex(bucket), "little"),
            None if first is None else bytes.fromhex(first).decode(),
        )
        found.setdefault(values, []).extend(rows["id"].to_pylist())
        if order[-1:] != [partition]:
            order.append(partition)
    assert found == expected  # rows as they came
    assert len(order) == len(set(order)) == len(expected)


def test_z_order(spark: SparkSession, tmp_path: Path) -> None:
    case = _case(spark, tmp_path, strategy=Strategy.ZORDER, zorder=(4, 15, 6))
    table = _together(case.written())
    _same_rows(case.rows, table)
    curve = case.made.merger.sorter.curve
    assert curve is not None
    columns = [sortable(table[name].combine_chunks()) for name in ("long", "string", "double")]
    numbers = curve.of_rows([column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns])
    expected = sorted(zip(numbers.to_pylist(), table["id"].to_pylist(), strict=True))
    assert [id_ for _, id_ in expected] == table["id"].to_pylist()


def test_one_task_of_many_ranges(spark: SparkSession, tmp_path: Path) -> None:
    order = (SortKey(field_id=3, transform="identity", descending=True, nulls_first=False),)
    case = _case(spark, tmp_path, tasks=1, strategy=Strategy.SORT, order=order)
    assert len(case.made.tasks) == 1
    assert len(case.made.tasks[0]) > 5
    assert _together(case.written())["id"].to_pylist() == in_order(case.rows, SCHEMA, order)


def test_what_fits_is_one_range_without_a_sample(spark: SparkSession, tmp_path: Path) -> None:
    order = (SortKey(field_id=3, transform="identity", descending=True, nulls_first=False),)
    case = _case(spark, tmp_path, tasks=1, rows_bytes=1 << 20, strategy=Strategy.SORT, order=order)
    assert case.made.tasks == [range(1)]
    assert _together(case.written())["id"].to_pylist() == in_order(case.rows, SCHEMA, order)


def test_a_range_that_is_larger_than_memory(spark: SparkSession, tmp_path: Path) -> None:
    """What was said of the files is wrong, so that one range is made of what would be many."""
    order = (
        SortKey(field_id=15, transform="identity", descending=False, nulls_first=False),
        SortKey(field_id=8, transform="identity", descending=True, nulls_first=True),
    )
    case = _case(spark, tmp_path, tasks=1, recorded_rows=1, strategy=Strategy.SORT, order=order)
    assert case.made.tasks == [range(1)]
    assert min(len(run.batches) for run in case.made.merger.runs) > 1
    written = case.written()
    assert _together(written)["id"].to_pylist() == in_order(case.rows, SCHEMA, order)
    assert max(rows.nbytes for _, rows in written) < 48 << 10


def test_equal_keys_are_balanced(spark: SparkSession, tmp_path: Path) -> None:
    order = (SortKey(field_id=19, transform="identity", descending=False, nulls_first=True),)
    case = _case(spark, tmp_path, tasks=4, strategy=Strategy.SORT, order=order)
    counts = [sum(case.made.rows(task).values()) for task in range(len(case.made.tasks))]
    assert len(counts) == 4
    assert min(counts) > _ROWS * _FILES // 8
    assert _together(case.written())["id"].to_pylist() == list(range(_ROWS * _FILES))


def test_nothing_is_left_in_scratch(spark: SparkSession, tmp_path: Path) -> None:
    case = _case(spark, tmp_path, strategy=Strategy.ZORDER, zorder=(4,))
    assert {path.name for path in tmp_path.glob("run-*")} == {Path(run.path).name for run in case.made.merger.runs}
    case.made.discard()
    assert not list(tmp_path.glob("run-*"))


#: What the JVM and the interpreters may take without any rows; all rows together are as much once more.
_IDLE = (512 + 700) << 20


def test_memory_stays_bounded_for_more_rows_than_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.exchanged", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["peak"] < _IDLE + found["budget"]
    assert found["bytes"] > 3 * found["budget"]
    rows, first, last, in_order, largest = zip(*found["tasks"], strict=True)
    assert sum(rows) == found["rows"]
    assert all(in_order)
    assert last[0] > first[1]
    assert min(rows) > 0.45 * sum(rows)
    assert max(largest) < 2 * found["batch"]
