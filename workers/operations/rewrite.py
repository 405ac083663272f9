"""The rewriting of one unit: its deletes resolved, its live rows written into files of the right size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from pyiceberg.io import FileIO

from producer.model.plan import Scope, Strategy
from producer.model.staged import StagedDataFile
from workers.arrow.schema import written_schema
from workers.deletes.resolve import DeleteResolver
from workers.formats.output_files import Written
from workers.formats.row_reader import RowReader
from workers.model.units import RewriteResult, RewriteUnit
from workers.operations.inputs import READ, LiveRows, group_by_partition, group_splits, split_inputs
from workers.operations.write_rows import copy_rows, merge_small_files, rearrange_rows
from workers.runtime.context import Cancellation, LazySession, SessionSource, UnitContext
from workers.runtime.errors import TaskFailed
from workers.runtime.machine import Budget
from workers.runtime.scratch import files_done, total_rows
from workers.runtime.session import running
from workers.runtime.supervisor import Progress, run_unit

#: Bytes of inputs that one process rewrites in the time that Spark takes to hand out its tasks; and in the seconds that
#: a session takes to start, or where there is one core anyway.
_ALONE_BYTES: Final = 16 << 20
_ALONE_BYTES_COLD: Final = 128 << 20
#: What a row counts for, at least: files whose rows are alike are small.
_ROW_BYTES: Final = 16


def rewrite(
    unit: RewriteUnit,
    io: FileIO,
    session: SessionSource,
    budget: Budget,
    scratch: Path,
    progress: Progress | None = None,
) -> RewriteResult:
    """Write a unit's live rows anew.

    Every path is noted in the unit's journal before it is written to, by one of :func:`tasks_of` tasks. Whatever is
    raised in the calling thread meanwhile, by ``progress`` or by a signal handler, ends the work in Spark as well.

    Args:
        unit: What is read and how is written.
        io: The table's file access; goes to Spark's tasks.
        session: The session that :func:`workers.runtime.session.session` made for this budget, or what makes it:
            it is started when there is work for several tasks.
        budget: Memory and cores.
        scratch: An empty folder, deleted by the caller. Rows that are arranged wait there, as they are in Arrow.
        progress: Called in this thread with data files read and in all, when that has changed.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
        TaskFailed: a Spark task failed for another reason.
    """
    lazy = LazySession(session, alone=_is_small(unit, budget, session))
    context = UnitContext(lazy, io, budget, scratch, Cancellation())
    work = Rewrite(unit, context)
    return run_unit(context, unit.name, work.result, lambda: work.read, len(unit.inputs), progress)


def _is_small(unit: RewriteUnit, budget: Budget, session: SessionSource) -> bool:
    """Whether one process is done with a unit before Spark's tasks are: they cost more than little work."""
    size = sum(max(file.size, file.record_count * _ROW_BYTES) for file in unit.inputs)
    at_hand = budget.cores > 1 and (not callable(session) or running(budget))
    return size <= (_ALONE_BYTES if at_hand else _ALONE_BYTES_COLD)


def tasks_of(budget: Budget) -> int:
    """How many tasks note paths in a unit's journal: those that write first, and those that merge small files."""
    return 2 * budget.shuffle_tasks


class Rewrite:
    """One rewrite, and how far it is."""

    def __init__(self, unit: RewriteUnit, context: UnitContext) -> None:
        self._unit = unit
        self._context = context
        #: The number of splits of each data file.
        self._splits: Counter[int] = Counter(file.index for file in unit.inputs)
        fields = written_schema(unit.schema, lineage=unit.lineage)
        reader = RowReader(context.io, fields, unit.deletes.name_mapping, context.budget.batch_bytes)
        self._rows = LiveRows(reader, context.scratch)

    @property
    def read(self) -> int:
        """The number of data files that were read to their end."""
        return files_done(self._context.scratch, self._splits, READ)

    def result(self) -> RewriteResult:
        """Resolve the deletes, write the live rows, and describe the files."""
        unit, context, rows = self._unit, self._context, self._rows
        most = context.budget.shuffle_tasks
        deletes = DeleteResolver(unit.deletes, context, keep_names=True)
        deletes.spool()
        copy = partial(copy_rows, context, unit, rows)
        if unit.strategy is not Strategy.BINPACK or None in unit.scopes:
            splits = split_inputs(unit.inputs, context.budget.cores)
            self._splits = Counter(split.file.index for split in splits)
            written = rearrange_rows(context, unit, rows, splits)
        else:
            groups = group_splits(group_by_partition(unit.inputs, unit.scopes), unit.sizes, most, rows.deleted_rows)
            self._splits = Counter(split.file.index for group in groups for split in group.splits)
            written = copy(groups)
        read, live = total_rows(context.scratch)
        if live != (records := sum(file.records for _, file in written)):
            raise TaskFailed(f"{live} rows are live, {records} were written")
        files = merge_small_files(written, unit, context.io, partial(copy, first=most))
        return RewriteResult(*number_scopes(files), read, read - live, deletes.named())


def number_scopes(written: Sequence[Written]) -> tuple[tuple[Scope, ...], tuple[StagedDataFile, ...]]:
    """Return the partitions of files, each once, and the files with the indexes of their partitions."""
    scopes = {scope: number for number, scope in enumerate(dict.fromkeys(scope for scope, _ in written))}
    return tuple(scopes), tuple(file.model_copy(update={"scope": scopes[scope]}) for scope, file in written)
