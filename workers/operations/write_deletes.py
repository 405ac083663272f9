"""The writing side of a conversion: sorted positions become position delete files or vectors, streaming."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat

from producer.model.staged import StagedDeleteFile, StagedVector
from workers.deletes.position_runs import Gone, Run, tasks_for
from workers.formats.deletion_vector import DeletionVector
from workers.formats.format_model import PositionDeleteWriter, format_model
from workers.formats.puffin import PuffinWriter, read_vector
from workers.model.convert_unit import ConversionUnit, Target
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks


def write(context: UnitContext, unit: ConversionUnit, gone: Gone) -> list[StagedDeleteFile | StagedVector]:
    """Write what equality deletes remove and nothing had removed before.

    Each destination is written by one task, its targets one after another, ascending.
    """
    io, scratch = context.io, context.scratch
    unit = replace(unit, matches=(), positions=())  # what is written does not depend on them, and they may be many
    by_partition = unit.granularity == "partition" and unit.format_version < 3
    groups: dict[int, list[int]] = defaultdict(list)
    counts = gone.counts(fresh=True)
    for target in counts:
        groups[unit.targets[target].scope if by_partition else target].append(target)
    targets = list(groups.values())
    tasks = tasks_for([sum(counts[target] for target in some) for some in targets], context.budget.cores)

    def work(task: int) -> Iterator[StagedDeleteFile | StagedVector]:
        mine = (target for index in tasks[task] for target in targets[index])
        runs = _wanted(scratch, (run for target in mine for run in gone.read(target)))
        if unit.format_version >= 3:
            yield from _write_vectors(unit, io, runs, unit.puffin_destination.format(task=task))
        elif by_partition:
            yield from _write_deletes(unit, io, runs, lambda target: unit.scope_destinations[target.scope])
        else:
            yield from _write_deletes(unit, io, runs, lambda target: target.destination)

    return run_tasks(context, len(tasks), work)


def _wanted(scratch: Path, runs: Iterator[Run]) -> Iterator[Run]:
    """A task that was cancelled lives on for a moment; with its scratch gone, nobody would remove what it writes."""
    for run in runs:
        if not scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        yield run


def _write_deletes(
    unit: ConversionUnit, io: FileIO, runs: Iterator[Run], destination: Callable[[Target], str]
) -> Iterator[StagedDeleteFile]:
    """One file for each destination; targets of a destination come one after another."""
    writer: PositionDeleteWriter | None = None
    path, scope = "", -1
    formats = format_model(FileFormat.PARQUET)
    with ExitStack() as stack:
        for run in runs:
            target = unit.targets[run.target]
            new = run.positions[~run.before]
            if not new.size:
                continue
            if destination(target) != path:
                if writer is not None:
                    yield writer.close(scope)
                path, scope = destination(target), target.scope
                stack.close()
                writer = stack.enter_context(formats.create_position_deletes(io, path, unit.properties))
            assert writer is not None
            writer.write(target.path, new)
        if writer is not None:
            yield writer.close(scope)


def _write_vectors(unit: ConversionUnit, io: FileIO, runs: Iterator[Run], path: str) -> Iterator[StagedVector]:
    """One vector for each target with new positions, all of a task in one Puffin file."""
    written: list[tuple[Target, int, int, int, int]] = []
    with PuffinWriter(io, path) as writer:
        for target, vector, new in _merged(unit, io, runs):
            offset, size = writer.add_vector(target.path, vector)
            written.append((target, offset, size, vector.cardinality, new))
        total = writer.close()
    for target, offset, size, cardinality, new in written:
        yield StagedVector(
            path=path,
            size=total,
            offset=offset,
            content_size=size,
            cardinality=cardinality,
            new_positions=new,
            scope=target.scope,
            target=target.path,
            merged=target.vector,
        )


def _merged(unit: ConversionUnit, io: FileIO, runs: Iterator[Run]) -> Iterator[tuple[Target, DeletionVector, int]]:
    """The union of all that deletes rows of a target, for targets where something is new."""
    current: Target | None = None
    vector, new = DeletionVector.empty(), 0
    for run in runs:
        target = unit.targets[run.target]
        if current is None or target.index != current.index:
            if current is not None and new:
                yield current, vector, new
            current, new = target, 0
            vector = read_vector(io, target.vector, target.path) if target.vector else DeletionVector.empty()
        fresh = run.positions[~run.before]
        new += int((~vector.contains(fresh)).sum())
        vector.add(run.positions)
    if current is not None and new:
        yield current, vector, new
