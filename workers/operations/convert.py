"""The conversion of one unit: match, subtract what was deleted before, write."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from producer.model.staged import StagedDeleteFile, StagedVector
from workers.arrow.canonical import canonical_type
from workers.deletes.matcher import FILE_ROWS, key_splits, split_cost
from workers.deletes.position_runs import DeletedPositions, PositionBatch, balance_positions
from workers.deletes.resolve import DeleteResolver
from workers.formats.deletion_vector import DeletionVector
from workers.formats.format_model import format_model
from workers.formats.puffin import PuffinWriter, vector_reader
from workers.model.delete_set import ContentFile, DeleteSet, FileSplit
from workers.model.units import ConversionResult, ConversionUnit
from workers.runtime.bulk_io import write_behind
from workers.runtime.context import Cancellation, LazySession, SessionSource, UnitContext
from workers.runtime.errors import UnsupportedFile
from workers.runtime.machine import Budget
from workers.runtime.parallel import run_tasks
from workers.runtime.scratch import check_scratch
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

    Data files that lose no further row get nothing. Only the paths of :func:`paths` are written. Whatever ``progress``
    or a signal handler raises in the calling thread ends the work in Spark as well.

    Args:
        unit: What is read, and where results are written.
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
    splits = [split for deletes in unit.deletes.equality for split in key_splits(deletes, unit.deletes.data_files)]
    expected = Counter(split.file.index for split in splits)
    lazy = LazySession(session, alone=_is_small(unit.deletes, splits, budget, session))
    context = UnitContext(lazy, io, budget, scratch, Cancellation())
    return run_unit(context, unit.name, lambda: _convert(unit, splits, context), expected, progress)


def paths(unit: ConversionUnit, budget: Budget) -> tuple[str, ...]:
    """Return every path that the conversion of a unit may write."""
    if unit.format_version < 3:
        return tuple(dict.fromkeys(unit.destinations))
    return tuple(unit.puffin_destination.format(task=task) for task in range(budget.shuffle_tasks))


def _is_small(deletes: DeleteSet, splits: Sequence[FileSplit], budget: Budget, session: SessionSource) -> bool:
    """Return whether one process can convert a unit in less time than a session takes to start.

    On one core tasks would come one after another anyway.
    """
    if budget.cores > 1 and (not callable(session) or running(budget)):
        return False  # the number of tasks follows from the work
    rows = sum(split_cost(split) for split in splits)
    rows += sum(file.record_count + FILE_ROWS for equality in deletes.equality for file in equality.files)
    return rows + len(deletes.positions) * FILE_ROWS <= _ALONE_ROWS


def _check_keys(deletes: DeleteSet) -> None:
    for equality in deletes.equality:
        for column in equality.columns:
            try:
                canonical_type(column.type)
            except TypeError as error:
                raise UnsupportedFile(equality.files[0].path, f"{error} (field {column.field_id})") from error


def _convert(unit: ConversionUnit, splits: Sequence[FileSplit], context: UnitContext) -> ConversionResult:
    resolver = DeleteResolver(unit.deletes, context, keep_names=unit.format_version >= 3)
    staged = _write(context, unit, resolver.resolve())
    deletes = tuple(item for item in staged if isinstance(item, StagedDeleteFile))
    vectors = tuple(item for item in staged if isinstance(item, StagedVector))
    return ConversionResult(
        deletes=deletes,
        vectors=vectors,
        named=resolver.named(),
        rows_read=sum(split.file.record_count for split in splits if split.number == 0),
        new_positions=sum(item.records for item in deletes) + sum(item.new_positions for item in vectors),
    )


def _write(
    context: UnitContext, unit: ConversionUnit, deleted: DeletedPositions
) -> list[StagedDeleteFile | StagedVector]:
    """Write what equality deletes remove and nothing had removed before.

    Each destination is written by one task, its data files one after another, ascending.
    """
    io, scratch = context.io, context.scratch
    # What is written does not depend on the deletes, and they may be many.
    unit = replace(unit, deletes=replace(unit.deletes, equality=(), positions=()))
    counts = deleted.counts(matched=True)
    groups: dict[str | int, list[int]] = defaultdict(list)
    for index in counts:
        groups[unit.destinations[index] if unit.format_version < 3 else index].append(index)
    files = list(groups.values())
    tasks = balance_positions([sum(counts[index] for index in group) for group in files], context.budget.cores)

    def read(task: int) -> Iterator[PositionBatch]:
        for index in (index for group in tasks[task] for index in files[group]):
            for batch in deleted.read(index):
                check_scratch(scratch)  # a cancelled task runs on for a moment
                yield batch

    def work(task: int) -> Iterator[StagedDeleteFile | StagedVector]:
        if unit.format_version < 3:
            yield from _write_position_deletes(unit, io, read(task))
        else:
            yield from _write_vectors(unit, io, read(task), unit.puffin_destination.format(task=task))

    return run_tasks(context, len(tasks), work)


def _write_position_deletes(
    unit: ConversionUnit, io: FileIO, batches: Iterator[PositionBatch]
) -> Iterator[StagedDeleteFile]:
    """Write one file for each destination; data files of a destination come one after another."""
    data_files, formats = unit.deletes.data_files, format_model(FileFormat.PARQUET)
    new = ((data_files[batch.file], batch.positions[~batch.before]) for batch in batches)
    rows = ((file, positions) for file, positions in new if positions.size)
    with write_behind(io) as behind:
        for path, group in groupby(rows, key=lambda item: unit.destinations[item[0].index]):
            with formats.create_position_deletes(behind, path, unit.properties) as writer:
                for file, positions in group:
                    writer.write(file.path, positions)
                yield writer.close(file.scope)


def _write_vectors(
    unit: ConversionUnit, io: FileIO, batches: Iterator[PositionBatch], path: str
) -> Iterator[StagedVector]:
    """Write one vector for each data file with new positions, all of a task in one Puffin file."""
    written: list[tuple[ContentFile, int, int, int, int]] = []
    with PuffinWriter(io, path) as writer:
        for file, vector, new in _merged(unit, io, batches):
            offset, size = writer.add_vector(file.path, vector)
            written.append((file, offset, size, vector.cardinality, new))
        total = writer.close()
    for file, offset, size, cardinality, new in written:
        yield StagedVector(
            path=path,
            size=total,
            offset=offset,
            content_size=size,
            cardinality=cardinality,
            new_positions=new,
            scope=file.scope,
            target=file.path,
            merged=file.vector,
        )


def _merged(
    unit: ConversionUnit, io: FileIO, batches: Iterator[PositionBatch]
) -> Iterator[tuple[ContentFile, DeletionVector, int]]:
    """Yield the union of all that deletes rows of a data file, for data files where something is new."""
    with vector_reader(io) as read:
        for index, group in groupby(batches, key=attrgetter("file")):
            file = unit.deletes.data_files[index]
            vector, new = read(file.vector, file.path) if file.vector else DeletionVector.of(()), 0
            for batch in group:
                matched = batch.positions[~batch.before]
                new += int((~vector.contains(matched)).sum())
                vector.add(batch.positions)
            if new:
                yield file, vector, new
