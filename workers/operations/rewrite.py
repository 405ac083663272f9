"""The rewriting of one unit: its deletes resolved, its live rows written into files of the right size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from pyiceberg.io import FileIO

from producer.model.plan import Scope, Strategy
from producer.model.staged import StagedDataFile
from workers.arrow.schema import data_file_schema
from workers.deletes.resolve import DeleteResolver
from workers.formats.output_files import OutputFiles, ScopedFile
from workers.formats.row_reader import RowReader
from workers.model.delete_set import ContentFile, FileSplit
from workers.model.units import RewriteResult, RewriteUnit
from workers.operations.inputs import (
    READ,
    LiveRows,
    SplitGroup,
    balance_groups,
    group_by_partition,
    group_splits,
    split_inputs,
)
from workers.runtime.context import Cancellation, LazySession, SessionSource, UnitContext
from workers.runtime.errors import TaskFailed
from workers.runtime.machine import Budget
from workers.runtime.parallel import read_ahead, run_tasks
from workers.runtime.scratch import total_rows
from workers.runtime.session import running
from workers.runtime.supervisor import Progress, run_unit
from workers.sorting.exchange import exchange_rows
from workers.sorting.sort_keys import key_fields

#: Bytes of inputs that one process rewrites in the time that Spark takes to hand out its tasks; and in the seconds that
#: a session takes to start, or where there is one core anyway.
_ALONE_BYTES: Final = 16 << 20
_ALONE_BYTES_COLD: Final = 128 << 20
#: The bytes that a row counts as, at least: files of equal rows are small.
_ROW_BYTES: Final = 16
#: Batches that are read before they are written, and slices of rearranged rows.
_BATCHES_AHEAD: Final = 4
_SLICES_AHEAD: Final = 2


def rewrite(
    unit: RewriteUnit,
    io: FileIO,
    session: SessionSource,
    budget: Budget,
    scratch: Path,
    progress: Progress | None = None,
) -> RewriteResult:
    """Write a unit's live rows anew.

    Every path is noted in the unit's journal before it is written to, by one of :func:`tasks_of` tasks. Whatever
    ``progress`` or a signal handler raises in the calling thread ends the work in Spark as well.

    Args:
        unit: What is read, and how rows are written.
        io, session, budget, progress: As in :func:`workers.operations.convert.convert`.
        scratch: An empty folder, deleted by the caller. Rows that are sorted wait there, as they are in Arrow.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
        TaskFailed: a Spark task failed for another reason.
    """
    lazy = LazySession(session, alone=_is_small(unit, budget, session))
    context = UnitContext(lazy, io, budget, scratch, Cancellation())
    splits = {file.index: 1 for file in unit.inputs}
    return run_unit(context, unit.name, lambda: _rewrite(unit, context, splits), splits, progress, READ)


def _is_small(unit: RewriteUnit, budget: Budget, session: SessionSource) -> bool:
    """Return whether one process can rewrite a unit in less time than Spark's tasks take to start."""
    size = sum(max(file.size, file.record_count * _ROW_BYTES) for file in unit.inputs)
    at_hand = budget.cores > 1 and (not callable(session) or running(budget))
    return size <= (_ALONE_BYTES if at_hand else _ALONE_BYTES_COLD)


def tasks_of(budget: Budget) -> int:
    """Return how many tasks note paths in a unit's journal: those that write first, and those that merge files."""
    return 2 * budget.shuffle_tasks


def _rewrite(unit: RewriteUnit, context: UnitContext, expected: dict[int, int]) -> RewriteResult:
    """Resolve the deletes, write the live rows, and describe the files.

    The number of splits of each data file is put into ``expected`` before any is read.
    """
    most = context.budget.shuffle_tasks
    deletes = DeleteResolver(unit.deletes, context, keep_names=True)
    deletes.spool()
    fields = data_file_schema(unit.schema, lineage=unit.lineage)
    reader = RowReader(context.io, fields, unit.deletes.name_mapping, context.budget.batch_bytes)
    rows = LiveRows(reader, context.scratch)
    copy = partial(_copy, context, unit, rows)
    if unit.strategy is not Strategy.BINPACK or None in unit.scopes:
        splits = split_inputs(unit.inputs, context.budget.cores)
        expected.update((split.file.index, split.count) for split in splits)
        written = _rearrange(context, unit, rows, splits)
    else:
        groups = group_splits(group_by_partition(unit.inputs, unit.scopes), unit.sizes, most, rows.deleted_rows)
        expected.update((split.file.index, split.count) for group in groups for split in group.splits)
        written = copy(groups)
    read, live = total_rows(context.scratch)
    if live != (records := sum(file.records for _, file in written)):
        raise TaskFailed(f"{live} rows are live, {records} were written")
    files = _merge_small_files(written, unit, context.io, partial(copy, first=most))
    return RewriteResult(*number_scopes(files), read, read - live, deletes.named())


def number_scopes(written: Sequence[ScopedFile]) -> tuple[tuple[Scope, ...], tuple[StagedDataFile, ...]]:
    """Return the partitions of files, each once, and the files with the indexes of their partitions."""
    scopes = {scope: number for number, scope in enumerate(dict.fromkeys(scope for scope, _ in written))}
    return tuple(scopes), tuple(file.model_copy(update={"scope": scopes[scope]}) for scope, file in written)


def _copy(
    context: UnitContext, unit: RewriteUnit, rows: LiveRows, groups: Sequence[SplitGroup], first: int = 0
) -> list[ScopedFile]:
    """Write each group's rows as they come; the first task notes its paths under ``first``."""
    tasks = balance_groups(groups, context.budget.shuffle_tasks)
    until_cancelled = context.cancellation.until_set

    def copy(task: int) -> Iterator[ScopedFile]:
        files = OutputFiles(unit, context.io, first + task, context.scratch, context.budget.rows_bytes)
        for group in tasks[task]:
            batches = until_cancelled(read_ahead(rows.read_all(group.splits), _BATCHES_AHEAD))
            yield from files.write(group.partition, batches, group.row_bytes, group.rows)

    return run_tasks(context, len(tasks), copy)


def _rearrange(
    context: UnitContext, unit: RewriteUnit, rows: LiveRows, splits: Sequence[FileSplit]
) -> list[ScopedFile]:
    """Write the rows of all splits in the unit's order, each into its partition."""
    live = sum(max(0, file.record_count - rows.deleted_rows(file)) for file in unit.inputs)
    row_bytes = sum(file.size for file in unit.inputs) / max(1, sum(file.record_count for file in unit.inputs))
    tasks = min(unit.sizes.files(live * row_bytes), context.budget.shuffle_tasks)
    keys = LiveRows(replace(rows.reader, fields=key_fields(unit)), context.scratch)
    exchange = exchange_rows(context, unit, rows, keys, splits, tasks)
    until_cancelled = context.cancellation.until_set

    def write(task: int) -> Iterator[ScopedFile]:
        files = OutputFiles(unit, context.io, task, context.scratch, context.budget.rows_bytes)
        expected = exchange.rows(task)
        slices = until_cancelled(read_ahead(exchange.read(task), _SLICES_AHEAD))
        for partition, group in groupby(slices, key=itemgetter(0)):
            yield from files.write(partition, (rows for _, rows in group), row_bytes, expected[partition])

    written = run_tasks(context, len(exchange.tasks), write)
    exchange.discard()
    return written


def _merge_small_files(
    written: list[ScopedFile], unit: RewriteUnit, io: FileIO, copy: Callable[[Sequence[SplitGroup]], list[ScopedFile]]
) -> list[ScopedFile]:
    """Merge files that came out too small: several tasks may each have had too few rows at its end.

    They are read in the order in which they were written, so that sorted rows stay sorted. Their paths do not tell it:
    a table's location provider may put a hash before each name.
    """
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
