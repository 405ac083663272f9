"""Rows written in order, or on the way to their partitions: one task for each lane of their exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark.sql import SparkSession

from workers.ahead import ahead
from workers.exchange import exchanged
from workers.failures import told
from workers.lanes import Part
from workers.liverows import LiveRows
from workers.machine import Budget
from workers.placing import RESULT, Files, Written, written_of
from workers.rewriting import RewriteUnit
from workers.rowkeys import key_fields

#: Slices that are put in order before they are written.
_AHEAD: Final = 2


def arranged(
    session: SparkSession,
    unit: RewriteUnit,
    io: FileIO,
    rows: LiveRows,
    budget: Budget,
    scratch: Path,
    parts: Sequence[Part],
) -> list[Written]:
    """Write the rows of all parts in the unit's arrangement, each into its partition."""
    live = sum(max(0, file.record_count - rows.lost(file)) for file in unit.inputs)
    width = sum(file.size for file in unit.inputs) / max(1, sum(file.record_count for file in unit.inputs))
    lanes = min(unit.sizes.files(live * width), budget.shuffle_tasks)
    keys = LiveRows(replace(rows.reader, fields=key_fields(unit)), scratch)
    exchange = exchanged(session, unit, rows, keys, parts, lanes, budget, scratch)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            for lane in (lane for batch in batches for lane in batch.column(0).to_pylist()):
                files, expected = Files(unit, io, lane, scratch, budget.rows_bytes), exchange.rows(lane)
                for partition, found in groupby(ahead(exchange.read(lane), _AHEAD), key=itemgetter(0)):
                    yield files.write(partition, (rows for _, rows in found), width, expected[partition])

    if not exchange.lanes:
        return []
    ids = session.range(0, len(exchange.lanes), 1, len(exchange.lanes))
    written = [written_of(row.file) for row in ids.mapInArrow(write, RESULT).collect()]
    exchange.discard()
    return written
