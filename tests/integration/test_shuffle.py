"""Rows through Spark and back: bit by bit, in order, in the right partitions, spilled where they are many."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform, TruncateTransform
from pyspark.sql import SparkSession

from tests.support.rewriteunit import SCHEMA, rewrite_unit
from tests.support.rows import EVERYTHING, everything
from tests.support.sorting import in_order
from workers.machine import Budget, Machine
from workers.rewriting import Arrangement, Input, Partition, RewriteUnit, SortColumn
from workers.rowkeys import key_fields
from workers.rowtypes import arrow_schema
from workers.shuffle import Arranged, arranged
from workers.storage import stored

pytestmark = pytest.mark.spark

_ROWS = 700
_FILES = 5


@dataclass(frozen=True)
class Batch:
    """A piece whose rows lie in a file of Arrow's own format, which keeps everything."""

    file: Input
    rows: int = _ROWS
    size: int = 1


@dataclass(frozen=True)
class Case:
    """A unit and its rows."""

    unit: RewriteUnit
    rows: pa.Table
    made: Arranged

    def written(self) -> list[tuple[Partition, pa.RecordBatch]]:
        """What the write tasks get, one after another, with the rows' own form and metadata."""
        layout = self.made.layout

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            for partition, rows in layout.runs(batches):
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, rows.schema) as writer:
                    writer.write_batch(rows)
                context = TaskContext.get()
                assert context is not None
                yield pa.record_batch(
                    {
                        "task": pa.array([context.partitionId()], pa.int32()),
                        "values": pa.array([list(partition.values)], pa.list_(pa.string())),
                        "path": [partition.path],
                        "rows": pa.array([sink.getvalue().to_pybytes()], pa.binary()),
                    }
                )

        ddl = "task int, values array<string>, path string, rows binary"
        found = self.made.frame.mapInArrow(write, ddl).collect()
        assert [row.task for row in found] == sorted(row.task for row in found)
        self_tasks = {row.task for row in found}
        assert len(self_tasks) > 1 or len(self.rows) < 10
        return [
            (Partition(tuple(row["values"]), row.path), pa.ipc.open_stream(bytes(row["rows"])).read_next_batch())
            for row in found
        ]


def _case(session: SparkSession, folder: Path, tasks: int = 4, **options: Any) -> Case:
    unit = rewrite_unit(files=_FILES, **options)
    full = [everything(_ROWS, seed) for seed in range(_FILES)]
    paths = []
    for index, rows in enumerate(full):
        rows = rows.set_column(0, EVERYTHING.field(0), pa.array(range(index * _ROWS, (index + 1) * _ROWS)))
        full[index] = rows
        paths.append(folder / f"{index}.arrow")
        with pa.ipc.new_file(str(paths[-1]), rows.schema) as writer:
            writer.write_table(pa.Table.from_batches([rows]), max_chunksize=300)

    def reading(schema: pa.Schema) -> tuple[pa.Schema, Callable[[Batch], Iterator[pa.RecordBatch]]]:
        def read(piece: Batch) -> Iterator[pa.RecordBatch]:
            with pa.ipc.open_file(str(paths[piece.file.index])) as reader:
                for index in range(reader.num_record_batches):
                    batch = reader.get_batch(index)
                    columns = [_narrowed(batch.column(field.name), field.type) for field in schema]
                    yield pa.RecordBatch.from_arrays(columns, schema=schema)

        return schema, read

    budget = Budget.of(Machine.detect(), cores=2)
    made = arranged(
        session,
        unit,
        reading(EVERYTHING),
        reading(arrow_schema(key_fields(unit))),
        [Batch(file) for file in unit.inputs],
        tasks,
        budget,
        folder,
    )
    return Case(unit, pa.Table.from_batches(full), made)


def _narrowed(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """Only those fields of a struct that a key schema has."""
    if not pa.types.is_struct(type_) or array.type.num_fields == type_.num_fields:
        return array
    children = [array.field(array.type.get_field_index(field.name)) for field in type_]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())


def _together(written: list[tuple[Partition, pa.RecordBatch]]) -> pa.Table:
    table = pa.Table.from_batches([rows for _, rows in written])
    assert table.schema.equals(EVERYTHING, check_metadata=True)
    return table


def _same_rows(one: pa.Table, other: pa.Table) -> None:
    other = other.sort_by("id").combine_chunks()
    one = one.combine_chunks()
    for before, after in zip(one.columns, other.columns, strict=True):
        assert stored(before.chunk(0)).equals(stored(after.chunk(0)))


#: One of each form that keys have in Spark; all types are sorted in the unit tests of ranges.
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
        SortColumn(key[0], key[1], descending, nulls_first),
        SortColumn(7, IdentityTransform(), not descending, not nulls_first),
    )
    case = _case(spark, tmp_path, arrangement=Arrangement.SORT, order=order)
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
    known = Partition(("01", None, "61"), "flag=true/date_bucket=null/first=a")
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
    order: list[Partition] = []
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


def test_z_order_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    case = _case(spark, tmp_path, arrangement=Arrangement.ZORDER, zorder=(4, 15, 6))
    _same_rows(case.rows, _together(case.written()))


def test_one_task_and_few_rows(spark: SparkSession, tmp_path: Path) -> None:
    order = (SortColumn(3, IdentityTransform(), True, False),)
    case = _case(spark, tmp_path, tasks=1, arrangement=Arrangement.SORT, order=order)
    assert case.made.frame.rdd.getNumPartitions() == 1


def test_equal_keys_are_dealt_to_all_tasks(spark: SparkSession, tmp_path: Path) -> None:
    order = (SortColumn(19, IdentityTransform(), False, True),)
    case = _case(spark, tmp_path, tasks=4, arrangement=Arrangement.SORT, order=order)
    counts = [sum(1 for _ in rows) for rows in case.made.frame.select("part").rdd.glom().collect()]
    assert len(counts) == 4
    assert min(counts) > _ROWS * _FILES // 8
    assert _together(case.written())["id"].to_pylist() == list(range(_ROWS * _FILES))


def test_a_sort_that_is_larger_than_the_heap_spills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.spilled", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["bytes"] > 1.4 * found["heap"]
    rows, first, last, in_order, largest = zip(*found["ranges"], strict=True)
    assert sum(rows) == 200_000
    assert all(in_order)
    assert last[0] > first[1]
    assert min(rows) > 0.45 * sum(rows)
    assert max(largest) < 2 * found["batch"]
