"""The writing side of a conversion: sorted positions become position delete files or vectors, streaming."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from producer.model.staged import StagedDeleteFile, StagedVector
from workers.deletes.position_runs import DeletedPositions, PositionBatch, balance_positions
from workers.formats.deletion_vector import DeletionVector
from workers.formats.format_model import PositionDeleteWriter, format_model
from workers.formats.puffin import PuffinWriter, read_vector
from workers.model.delete_set import ContentFile
from workers.model.units import ConversionUnit
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks


def write_deletes(
    context: UnitContext, unit: ConversionUnit, deleted: DeletedPositions
) -> list[StagedDeleteFile | StagedVector]:
    """Write what equality deletes remove and nothing had removed before.

    Each destination is written by one task, its data files one after another, ascending.
    """
    io, scratch = context.io, context.scratch
    # What is written does not depend on the deletes, and they may be many.
    unit = replace(unit, deletes=replace(unit.deletes, equality=(), positions=()))
    data_files = unit.deletes.data_files
    by_partition = unit.granularity == "partition" and unit.format_version < 3
    counts = deleted.counts(matched=True)
    groups: dict[int, list[int]] = defaultdict(list)
    for index in counts:
        groups[data_files[index].scope if by_partition else index].append(index)
    files = list(groups.values())
    tasks = balance_positions([sum(counts[index] for index in some) for some in files], context.budget.cores)

    def work(task: int) -> Iterator[StagedDeleteFile | StagedVector]:
        mine = (index for group in tasks[task] for index in files[group])
        batches = _until_deleted(scratch, (batch for index in mine for batch in deleted.read(index)))
        if unit.format_version >= 3:
            yield from _write_vectors(unit, io, batches, unit.puffin_destination.format(task=task))
        elif by_partition:
            yield from _write_position_deletes(unit, io, batches, lambda file: unit.destinations[file.scope])
        else:
            yield from _write_position_deletes(unit, io, batches, lambda file: unit.destinations[file.index])

    return run_tasks(context, len(tasks), work)


def _until_deleted(scratch: Path, batches: Iterator[PositionBatch]) -> Iterator[PositionBatch]:
    """A task that was cancelled lives on for a moment; with its scratch gone, nobody would remove what it writes."""
    for batch in batches:
        if not scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        yield batch


def _write_position_deletes(
    unit: ConversionUnit, io: FileIO, batches: Iterator[PositionBatch], destination: Callable[[ContentFile], str]
) -> Iterator[StagedDeleteFile]:
    """Write one file for each destination; data files of a destination come one after another."""
    writer: PositionDeleteWriter | None = None
    path, scope = "", -1
    formats = format_model(FileFormat.PARQUET)
    with ExitStack() as stack:
        for batch in batches:
            file = unit.deletes.data_files[batch.file]
            new = batch.positions[~batch.before]
            if not new.size:
                continue
            if destination(file) != path:
                if writer is not None:
                    yield writer.close(scope)
                path, scope = destination(file), file.scope
                stack.close()
                writer = stack.enter_context(formats.create_position_deletes(io, path, unit.properties))
            assert writer is not None
            writer.write(file.path, new)
        if writer is not None:
            yield writer.close(scope)


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
    for index, group in groupby(batches, key=attrgetter("file")):
        file = unit.deletes.data_files[index]
        vector, new = read_vector(io, file.vector, file.path) if file.vector else DeletionVector.empty(), 0
        for batch in group:
            matched = batch.positions[~batch.before]
            new += int((~vector.contains(matched)).sum())
            vector.add(batch.positions)
        if new:
            yield file, vector, new
