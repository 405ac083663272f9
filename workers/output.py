"""The writing side of a conversion: sorted positions become position delete files or vectors, streaming."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark import TaskContext

from workers.failures import told
from workers.position_deletes import PositionDeleteWriter
from workers.puffin import PuffinWriter, read_vector
from workers.unit import ConversionUnit, StagedDelete, StagedVector, Target
from workers.vectors import DeletionVector

Positions = npt.NDArray[np.int64]
Batches = Iterator[pa.RecordBatch]

#: Kind, description as JSON, new positions.
SCHEMA = "kind string, written string, new_positions bigint"
_RESULT = pa.schema([("kind", pa.string()), ("written", pa.string()), ("new_positions", pa.int64())])


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive rows of one target: distinct ascending positions, and which of them were deleted before."""

    target: int
    positions: Positions
    before: npt.NDArray[np.bool_]


def write(unit: ConversionUnit, io: FileIO, scratch: Path) -> Callable[[Batches], Batches]:
    """What Spark's write tasks do with batches of ``file, pos, fresh``, sorted by all three."""
    unit = replace(unit, matches=(), positions=())  # what is written does not depend on them, and they may be many

    def run(batches: Batches) -> Batches:
        with told(scratch):
            wanted = _wanted(scratch, runs(batches))
            if unit.format_version >= 3:
                yield from _write_vectors(unit, io, wanted)
            elif unit.granularity == "partition":
                yield from _write_deletes(unit, io, wanted, lambda target: unit.scope_destinations[target.scope])
            else:
                yield from _write_deletes(unit, io, wanted, lambda target: target.destination)

    return run


def staged_of(kind: str, written: str) -> StagedDelete | StagedVector:
    """The description that a write task gave of what it wrote."""
    fields = json.loads(written)
    if kind == "vector":
        return StagedVector(**fields)
    for name in ("column_sizes", "value_counts"):
        fields[name] = {int(field_id): count for field_id, count in fields[name].items()}
    for name in ("targets", "split_offsets"):
        fields[name] = tuple(fields[name])
    return StagedDelete(**fields)


def runs(batches: Batches) -> Iterator[Run]:
    """Cut sorted batches where the target changes, and drop repeated positions, also across batches.

    Sorted with what was deleted before in front, a position's first row says whether it was.
    """
    last: tuple[int, int] | None = None
    for batch in batches:
        files, positions = (batch.column(name).to_numpy(zero_copy_only=False) for name in ("file", "pos"))
        fresh = batch.column("fresh").to_numpy(zero_copy_only=False)
        if not len(files):
            continue
        changes = (files[1:] != files[:-1]) | (positions[1:] != positions[:-1])
        distinct = np.concatenate(([last != (files[0], positions[0])], changes))
        last = (files[-1], positions[-1])
        files, positions, fresh = files[distinct], positions[distinct], fresh[distinct]
        if not len(files):
            continue
        starts = np.flatnonzero(np.concatenate(([True], files[1:] != files[:-1])))
        ends = [*starts[1:], len(files)]
        for start, end in zip(starts, ends, strict=True):
            yield Run(int(files[start]), positions[start:end], ~fresh[start:end])


def _wanted(scratch: Path, runs: Iterator[Run]) -> Iterator[Run]:
    """A task that was cancelled lives on for a moment; with its scratch gone, nobody would remove what it writes."""
    for run in runs:
        if not scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        yield run


def _write_deletes(
    unit: ConversionUnit, io: FileIO, runs: Iterator[Run], destination: Callable[[Target], str]
) -> Batches:
    """One file for each destination; targets of a destination come one after another."""
    writer: PositionDeleteWriter | None = None
    path, written = "", set[int]()
    with ExitStack() as stack:
        for run in runs:
            target = unit.targets[run.target]
            new = run.positions[~run.before]
            if not new.size:
                continue
            if destination(target) != path:
                if writer is not None:
                    yield _described("delete", writer.close(written))
                path, written = destination(target), set()
                stack.close()
                writer = stack.enter_context(PositionDeleteWriter(io, path, unit.properties))
            assert writer is not None
            writer.write(target.path, new)
            written.add(run.target)
        if writer is not None:
            yield _described("delete", writer.close(written))


def _write_vectors(unit: ConversionUnit, io: FileIO, runs: Iterator[Run]) -> Batches:
    """One vector for each target with new positions, all of a task in one Puffin file."""
    context = TaskContext.get()
    path = unit.puffin_destination.format(task=context.partitionId() if context else 0)
    vectors: list[tuple[int, int, int, int, int]] = []
    with PuffinWriter(io, path) as writer:
        for target, vector, new in _merged(unit, io, runs):
            offset, size = writer.add_vector(target.path, vector)
            vectors.append((target.index, offset, size, vector.cardinality, new))
        total = writer.close()
    for index, offset, size, cardinality, new in vectors:
        yield _described("vector", StagedVector(path, total, offset, size, cardinality, index, new))


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


def _described(kind: str, written: StagedDelete | StagedVector) -> pa.RecordBatch:
    new = written.record_count if isinstance(written, StagedDelete) else written.new_positions
    return pa.RecordBatch.from_arrays(
        [pa.array([kind]), pa.array([json.dumps(asdict(written))]), pa.array([new], pa.int64())], schema=_RESULT
    )
