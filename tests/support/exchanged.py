"""A sort of more rows than memory holds, in a process of its own: ``python -m tests.support.exchanged <folder>``.

Prints one JSON object: bytes of the rows, of what may be held of them, and of the peak of all processes together, and
of each task its rows, first and last key, and whether sorted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField

from producer.model.plan import SortKey, Strategy
from tests.support.measured import watched
from tests.support.rewriteunit import rewrite_unit
from workers.arrow.schema import arrow_schema
from workers.model.delete_set import FileSplit
from workers.runtime import session
from workers.runtime.context import Cancellation, LazySession, UnitContext
from workers.runtime.machine import Budget, Machine
from workers.sorting.exchange import exchange_rows
from workers.sorting.sort_keys import key_fields

_SCHEMA = Schema(NestedField(1, "key", LongType(), required=True), NestedField(2, "body", BinaryType(), required=True))
_BATCHES, _ROWS, _BODY = 25, 1000, 4500
_FILES = 8


def _keys(index: int) -> Iterator[pa.RecordBatch]:
    """Rows of a file without their body, drawn when they are read: the same ones each time."""
    some = np.random.default_rng(index)
    for _ in range(_BATCHES):
        keys = pa.array(some.integers(0, 1 << 40, _ROWS))
        yield pa.RecordBatch.from_arrays([keys], schema=arrow_schema(Schema(_SCHEMA.fields[0])))


def _whole(index: int) -> Iterator[pa.RecordBatch]:
    """Whole rows of a file, with a body that does not compress."""
    schema, some = arrow_schema(_SCHEMA), np.random.default_rng(index + 1000)
    offsets = pa.py_buffer(np.arange(0, (_ROWS + 1) * _BODY, _BODY, dtype=np.int32))
    for batch in _keys(index):
        bodies = pa.Array.from_buffers(pa.binary(), _ROWS, [None, offsets, pa.py_buffer(some.bytes(_ROWS * _BODY))])
        yield pa.RecordBatch.from_arrays([batch.column(0), bodies], schema=schema)


@dataclass(frozen=True)
class Rows:
    """Rows as they are drawn, or their keys alone."""

    schema: pa.Schema

    def read(self, split: FileSplit, /) -> Iterator[pa.RecordBatch]:
        return (_whole if len(self.schema) > 1 else _keys)(split.file.index)

    read_uncounted = read


def main(folder: Path) -> None:
    """Sort, and say what came of it."""
    budget = Budget.of(Machine(2, 1 << 30), cores=2, heap_mb=512)
    order = (SortKey(field_id=1, transform="identity", descending=True, nulls_first=True),)
    unit = rewrite_unit(files=_FILES, schema=_SCHEMA, strategy=Strategy.SORT, order=order)
    peak, stop = watched()
    spark = session.session(budget, folder)
    keys = Rows(arrow_schema(key_fields(unit)))
    splits = [FileSplit(replace(file, record_count=_BATCHES * _ROWS, size=1)) for file in unit.inputs]
    context = UnitContext(LazySession(spark), PyArrowFileIO(), budget, folder, Cancellation())
    made = exchange_rows(context, unit, Rows(arrow_schema(_SCHEMA)), keys, splits, 2)

    def describe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in (task for batch in batches for task in batch.column(0).to_pylist()):
            largest, keys = 0, []
            for _, rows in made.read(task):
                largest = max(largest, rows.nbytes)
                keys.append(rows.column(0).to_numpy())
            found = np.concatenate(keys)
            values = [len(found), found[0], found[-1], int((np.diff(found) <= 0).all()), largest]
            yield pa.record_batch({f"v{index}": pa.array([value], pa.int64()) for index, value in enumerate(values)})

    ddl = "v0 bigint, v1 bigint, v2 bigint, v3 bigint, v4 bigint"
    tasks = len(made.tasks)
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(describe, ddl).collect()
    stop.set()
    print(
        json.dumps(
            {
                "budget": budget.cores * 4 * budget.rows_bytes,
                "batch": budget.batch_bytes,
                "rows": _FILES * _BATCHES * _ROWS,
                "bytes": _FILES * _BATCHES * _ROWS * _BODY,
                "tasks": [list(row) for row in rows],
                "peak": peak[0],
            }
        )
    )
    session.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
