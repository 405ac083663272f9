"""Work that is spread over Spark's tasks, each of which gives back some values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from workers.runtime.failures import told
from workers.runtime.lazy_session import LazySession

T = TypeVar("T")

_SCHEMA = pa.schema([("given", pa.binary())])


def spread(session: LazySession, tasks: int, scratch: Path, work: Callable[[int], Iterable[T]]) -> list[T]:
    """What ``work`` gives for each task's number, in no order.

    One task alone is done here, in this process, and so are all where the session is to do without others: what Spark
    costs would be more than what it does.

    Args:
        session: What runs the tasks, side by side.
        tasks: How many there are.
        scratch: Where errors are told.
        work: One task. What it gives is pickled.
    """
    if tasks <= 1 or session.alone:
        with told(scratch):
            return [given for number in session.until_stopped(range(tasks)) for given in work(number)]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            numbers = (number for batch in batches for number in batch.column(0).to_pylist())
            given = [pickle.dumps(value) for number in numbers for value in work(number)]
            yield pa.RecordBatch.from_arrays([pa.array(given, pa.binary())], schema=_SCHEMA)

    rows = session.range(0, tasks, 1, tasks).mapInArrow(run, "given binary").collect()
    return [pickle.loads(row.given) for row in rows]
