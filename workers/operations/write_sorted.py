"""Rows written in order, or on the way to their partitions: one task for each lane of their exchange."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from workers.formats.output_files import OutputFiles, Written
from workers.model.rewrite_unit import RewriteUnit
from workers.operations.inputs import Part
from workers.operations.live_rows import LiveRows
from workers.runtime.context import UnitContext
from workers.runtime.parallel import read_ahead, run_tasks
from workers.sorting.exchange import exchange_rows
from workers.sorting.sort_keys import key_fields

#: Slices that are put in order before they are written.
_AHEAD: Final = 2


def arranged(context: UnitContext, unit: RewriteUnit, rows: LiveRows, parts: Sequence[Part]) -> list[Written]:
    """Write the rows of all parts in the unit's arrangement, each into its partition."""
    live = sum(max(0, file.record_count - rows.lost(file)) for file in unit.inputs)
    width = sum(file.size for file in unit.inputs) / max(1, sum(file.record_count for file in unit.inputs))
    lanes = min(unit.sizes.files(live * width), context.budget.shuffle_tasks)
    keys = LiveRows(replace(rows.reader, fields=key_fields(unit)), context.scratch)
    exchange = exchange_rows(context, unit, rows, keys, parts, lanes)

    until_cancelled = context.cancellation.until_set

    def write(lane: int) -> Iterator[Written]:
        files = OutputFiles(unit, context.io, lane, context.scratch, context.budget.rows_bytes)
        expected = exchange.rows(lane)
        for partition, found in groupby(until_cancelled(read_ahead(exchange.read(lane), _AHEAD)), key=itemgetter(0)):
            yield from files.write(partition, (rows for _, rows in found), width, expected[partition])

    written = run_tasks(context, len(exchange.lanes), write)
    exchange.discard()
    return written
