"""Work side by side: the one way to run work in Spark's tasks, and a thread that reads ahead."""

from __future__ import annotations

import heapq
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from workers.runtime.context import UnitContext
from workers.runtime.errors import record_task_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

_PICKLED: Final = pa.schema([("value", pa.binary())])
#: A batch between Spark and a Python worker: neither a message for each row nor one for all rows.
_BATCH_ROWS: Final = 1 << 16
_BATCH_BYTES: Final = 8 << 20


def run_tasks(context: UnitContext, tasks: int, work: Callable[[int], Iterable[T]]) -> list[T]:
    """Return what ``work`` yields for each task number, in the order of these.

    A single task runs in this process, and so do all tasks where the session runs alone: Spark would cost more than
    the work. The values are pickled.
    """
    if tasks <= 1 or context.session.alone:
        with record_task_error(context.scratch):
            return [value for number in context.cancellation.until_set(range(tasks)) for value in work(number)]
    values = map_partitions(
        context.session.range(tasks, context.cancellation),
        context.scratch,
        lambda batches: ((number, value) for number in _task_numbers(batches) for value in work(number)),
    )
    return [value for _, value in sorted(values, key=itemgetter(0))]


def map_partitions(rows: DataFrame, scratch: Path, work: Callable[[Iterator[pa.RecordBatch]], Iterable[T]]) -> list[T]:
    """Return what ``work`` yields for the batches of each partition of a frame, in no order; it is pickled."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with record_task_error(scratch):
            values = [pickle.dumps(value) for value in work(batches)]
            yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=_PICKLED)

    return [pickle.loads(row.value) for row in rows.mapInArrow(run, "value binary").collect()]


def read_in_tasks(
    context: UnitContext, tasks: int, schema: pa.Schema, read: Callable[[int], Iterable[pa.RecordBatch]]
) -> DataFrame:
    """Return a frame of the rows that ``read`` yields for each task number."""
    from pyspark.sql.pandas.types import from_arrow_schema

    scratch = context.scratch

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with record_task_error(scratch):
            yield from coalesce_batches(rows for number in _task_numbers(batches) for rows in read(number))

    return context.session.range(tasks, context.cancellation).mapInArrow(run, from_arrow_schema(schema))


def balance(costs: Sequence[int], max_tasks: int) -> list[list[int]]:
    """Distribute work to at most ``max_tasks`` tasks, so that they end at about the same time.

    Returns:
        For each task the indexes of its costs. The most expensive item goes first, each to the task with the least
        load; no task is empty.
    """
    tasks: list[list[int]] = [[] for _ in range(max(1, min(max_tasks, len(costs))))]
    loads = [(0, task) for task in range(len(tasks))]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, task = loads[0]
        tasks[task].append(index)
        # Items without cost count too, or one task would get all of them.
        heapq.heapreplace(loads, (load + costs[index] + 1, task))
    return [task for task in tasks if task]


def coalesce_batches(
    batches: Iterable[pa.RecordBatch], max_rows: int = _BATCH_ROWS, max_bytes: int = _BATCH_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that reach a limit; the last batch may not. Empty batches are dropped."""
    buffer: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        buffer.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= max_rows or size >= max_bytes:
            yield _concat(buffer)
            buffer, rows, size = [], 0, 0
    if buffer:
        yield _concat(buffer)


def read_ahead(values: Iterable[T], depth: int) -> Iterator[T]:
    """Yield the same values, up to ``depth`` of which a thread makes before they are asked for.

    One thread decodes while another encodes, since Arrow releases Python's lock in both. Errors of the thread are
    raised here. The thread ends with the iteration, also when the iteration is closed early.
    """
    iterator, end = iter(values), object()
    pool = ThreadPoolExecutor(1, "read-ahead")
    try:
        waiting = deque(pool.submit(next, iterator, end) for _ in range(depth + 1))  # one of them is being made
        while (value := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, iterator, end))
            yield value  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)


def _task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _concat(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
