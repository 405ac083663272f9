"""Sizes of Arrow batches between Spark and its Python workers: neither a message for a row nor one for everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

_ROWS: Final = 1 << 16
_BYTES: Final = 8 << 20


def gathered(
    batches: Iterable[pa.RecordBatch], most_rows: int = _ROWS, most_bytes: int = _BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches that are large enough to be worth a message; empty ones are left out."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= most_rows or size >= most_bytes:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
