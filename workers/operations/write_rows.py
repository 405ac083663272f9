"""The writing side of a rewrite: live rows become data files, as they come or rearranged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from pyiceberg.io import FileIO

from producer.model.plan import Scope
from producer.model.staged import StagedDataFile
from workers.formats.output_files import OutputFiles, Written
from workers.model.delete_set import ContentFile, FileSplit
from workers.model.units import RewriteUnit
from workers.operations.inputs import LiveRows, SplitGroup, balance_groups, group_splits
from workers.runtime.context import UnitContext
from workers.runtime.parallel import read_ahead, run_tasks
from workers.sorting.exchange import exchange_rows
from workers.sorting.sort_keys import key_fields

#: Batches that are read before they are written, and slices of rearranged rows.
_BATCHES_AHEAD: Final = 4
_SLICES_AHEAD: Final = 2


def copy_rows(
    context: UnitContext, unit: RewriteUnit, rows: LiveRows, groups: Sequence[SplitGroup], first: int = 0
) -> list[Written]:
    """Write each group's rows as they come; the first task notes its paths under ``first``."""
    tasks = balance_groups(groups, context.budget.shuffle_tasks)
    until_cancelled = context.cancellation.until_set

    def copy(task: int) -> Iterator[Written]:
        files = OutputFiles(unit, context.io, first + task, context.scratch, context.budget.rows_bytes)
        for group in tasks[task]:
            batches = until_cancelled(read_ahead(rows.read_all(group.splits), _BATCHES_AHEAD))
            yield from files.write(group.partition, batches, group.row_bytes, group.rows)

    return run_tasks(context, len(tasks), copy)


def rearrange_rows(
    context: UnitContext, unit: RewriteUnit, rows: LiveRows, splits: Sequence[FileSplit]
) -> list[Written]:
    """Write the rows of all splits in the unit's order, each into its partition."""
    live = sum(max(0, file.record_count - rows.deleted_rows(file)) for file in unit.inputs)
    row_bytes = sum(file.size for file in unit.inputs) / max(1, sum(file.record_count for file in unit.inputs))
    tasks = min(unit.sizes.files(live * row_bytes), context.budget.shuffle_tasks)
    keys = LiveRows(replace(rows.reader, fields=key_fields(unit)), context.scratch)
    exchange = exchange_rows(context, unit, rows, keys, splits, tasks)
    until_cancelled = context.cancellation.until_set

    def write(task: int) -> Iterator[Written]:
        files = OutputFiles(unit, context.io, task, context.scratch, context.budget.rows_bytes)
        expected = exchange.rows(task)
        slices = until_cancelled(read_ahead(exchange.read(task), _SLICES_AHEAD))
        for partition, found in groupby(slices, key=itemgetter(0)):
            yield from files.write(partition, (rows for _, rows in found), row_bytes, expected[partition])

    written = run_tasks(context, len(exchange.tasks), write)
    exchange.discard()
    return written


def merge_small_files(
    written: list[Written], unit: RewriteUnit, io: FileIO, copy: Callable[[Sequence[SplitGroup]], list[Written]]
) -> list[Written]:
    """Merge files that came out too small: several tasks may each have had too few rows at its end."""
    small: dict[Scope, list[StagedDataFile]] = defaultdict(list)
    for partition, file in written:
        if file.size < unit.sizes.least:
            small[partition].append(file)
    several = {partition: files for partition, files in small.items() if len(files) > 1}
    if not several:
        return written
    inputs = [(partition, [_as_input(file) for file in files]) for partition, files in several.items()]
    merged = copy(group_splits(inputs, unit.sizes, 1, lambda file: 0))
    replaced = {file.path for files in several.values() for file in files}
    for path in replaced:
        io.delete(path)
    return [*(item for item in written if item[1].path not in replaced), *merged]


def _as_input(file: StagedDataFile) -> ContentFile:
    """Return a file that this rewrite has written, to be read again: whatever its rows inherit is stored in it."""
    return ContentFile(index=-1, path=file.path, sequence_number=0, scope=0, record_count=file.records, size=file.size)
