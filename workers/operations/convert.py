"""The conversion of one unit: match, subtract what was deleted before, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyiceberg.io import FileIO

from producer.model.staged import StagedDeleteFile, StagedVector
from workers.arrow.canonical import canonical_type
from workers.deletes.matcher import FILE_ROWS, key_splits, split_cost
from workers.deletes.resolve import DeleteResolver
from workers.model.delete_set import DeleteSet, FileSplit
from workers.model.units import ConversionResult, ConversionUnit
from workers.operations.write_deletes import write_deletes
from workers.runtime.context import Cancellation, LazySession, SessionSource, UnitContext
from workers.runtime.errors import UnsupportedFile
from workers.runtime.machine import Budget
from workers.runtime.scratch import files_done
from workers.runtime.session import running
from workers.runtime.supervisor import Progress, run_unit

#: Rows, with what opening a file costs in rows, that one process matches in the seconds that a session takes to start.
_ALONE_ROWS: Final = 50_000_000


def convert(
    unit: ConversionUnit,
    io: FileIO,
    session: SessionSource,
    budget: Budget,
    scratch: Path,
    progress: Progress | None = None,
) -> ConversionResult:
    """Write the position deletes or vectors that a unit's equality deletes amount to.

    Targets that lose no further row get nothing. Nothing but the paths of :func:`paths` is written. Whatever is raised
    in the calling thread meanwhile, by ``progress`` or by a signal handler, ends the work in Spark as well.

    Args:
        unit: What is read and where is written.
        io: The table's file access; goes to Spark's tasks.
        session: The session that :func:`workers.runtime.session.session` made for this budget, or what makes it:
            it is started when there is work for several tasks.
        budget: Memory and cores.
        scratch: An empty folder, deleted by the caller.
        progress: Called in this thread with data files done and in all, when that has changed.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
        TaskFailed: a Spark task failed for another reason.
    """
    _check_keys(unit.deletes)
    splits = [split for some in unit.deletes.equality for split in key_splits(some, unit.deletes.data_files)]
    expected = Counter(split.file.index for split in splits)
    lazy = LazySession(session, alone=_is_small(unit.deletes, splits, budget, session))
    context = UnitContext(lazy, io, budget, scratch, Cancellation())
    return run_unit(
        context,
        unit.name,
        lambda: _convert(unit, splits, context),
        lambda: files_done(scratch, expected),
        len(expected),
        progress,
    )


def paths(unit: ConversionUnit, budget: Budget) -> tuple[str, ...]:
    """Return every path that the conversion of a unit may write."""
    if unit.format_version < 3:
        return unit.destinations
    return tuple(unit.puffin_destination.format(task=task) for task in range(budget.shuffle_tasks))


def _is_small(deletes: DeleteSet, splits: Sequence[FileSplit], budget: Budget, session: SessionSource) -> bool:
    """Return whether one process is done with a unit before a session that has to be started has begun.

    On one core tasks would come one after another anyway.
    """
    if budget.cores > 1 and (not callable(session) or running(budget)):
        return False  # the number of tasks follows from the work
    rows = sum(split_cost(split) for split in splits)
    rows += sum(file.record_count + FILE_ROWS for some in deletes.equality for file in some.files)
    return rows + len(deletes.positions) * FILE_ROWS <= _ALONE_ROWS


def _check_keys(deletes: DeleteSet) -> None:
    for some in deletes.equality:
        for column in some.columns if some.files else ():
            try:
                canonical_type(column.type)
            except TypeError as error:
                raise UnsupportedFile(some.files[0].path, f"{error} (field {column.field_id})") from error


def _convert(unit: ConversionUnit, splits: Sequence[FileSplit], context: UnitContext) -> ConversionResult:
    resolver = DeleteResolver(unit.deletes, context, keep_names=unit.format_version >= 3)
    staged = write_deletes(context, unit, resolver.resolve())
    deletes = tuple(item for item in staged if isinstance(item, StagedDeleteFile))
    vectors = tuple(item for item in staged if isinstance(item, StagedVector))
    return ConversionResult(
        deletes=deletes,
        vectors=vectors,
        named=resolver.named(),
        rows_read=sum(split.file.record_count for split in splits if split.number == 0),
        new_positions=sum(item.records for item in deletes) + sum(item.new_positions for item in vectors),
    )
