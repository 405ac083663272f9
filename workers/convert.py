"""The conversion of one unit: match, subtract what was deleted before, write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.counter import reported
from workers.failures import heard
from workers.machine import Budget
from workers.match import matched
from workers.output import SCHEMA, staged_of, write
from workers.positions import deleted_before, named_files
from workers.unit import ConversionResult, ConversionUnit, StagedDelete, StagedVector


def convert(
    unit: ConversionUnit,
    io: FileIO,
    session: SparkSession,
    budget: Budget,
    scratch: Path,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionResult:
    """Write the position deletes or vectors that a unit's equality deletes amount to.

    Targets that lose no further row get nothing. Nothing but the paths of :func:`paths` is written.

    Args:
        unit: What is read and where is written.
        io: The table's file access; goes to Spark's tasks.
        session: A local session.
        budget: Memory and cores.
        scratch: An empty folder, deleted by the caller.
        progress: Called with data files done and in all.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
    """
    group = f"icefleet-{unit.name}"
    session.sparkContext.setJobGroup(group, unit.name, interruptOnCancel=True)
    files = len({file.index for match in unit.matches for file in match.data})
    try:
        with heard(scratch), reported(scratch, files, progress):
            rows = _positions(unit, io, session, budget, scratch)
            written = rows.mapInArrow(write(unit, io, scratch), SCHEMA).collect() if rows is not None else []
            staged = [staged_of(row.kind, row.written) for row in written]
            shared = [file for file in unit.positions if unit.format_version >= 3 and file.referenced is None]
            named = {file.path: named_files(io, file) for file in shared}
    except BaseException:
        session.sparkContext.cancelJobGroup(group)
        raise
    return ConversionResult(
        deletes=tuple(item for item in staged if isinstance(item, StagedDelete)),
        vectors=tuple(item for item in staged if isinstance(item, StagedVector)),
        named=named,
        rows_read=sum(file.record_count for match in unit.matches for file in match.data),
        new_positions=sum(row.new_positions for row in written),
    )


def paths(unit: ConversionUnit, budget: Budget) -> Iterator[str]:
    """Every path that the conversion of a unit may write."""
    if unit.format_version >= 3:
        yield from (unit.puffin_destination.format(task=task) for task in range(budget.shuffle_tasks))
    elif unit.granularity == "partition":
        yield from unit.scope_destinations.values()
    else:
        yield from (target.destination for target in unit.targets)


def _positions(
    unit: ConversionUnit, io: FileIO, session: SparkSession, budget: Budget, scratch: Path
) -> DataFrame | None:
    """Positions that are deleted now (``fresh``) or were before, sorted within each task by target and position."""
    counted: set[int] = set()
    frames: list[DataFrame] = []
    for number, match in enumerate(unit.matches):
        if match.data and match.deletes:
            first = frozenset(file.index for file in match.data) - counted
            counted |= first
            name = f"deletes-{number}"
            found = matched(session, match, io, unit.name_mapping, budget, scratch, name, first)
            frames.append(found.withColumn("fresh", f.lit(True)))
    if not frames:
        return None
    if unit.positions:
        before = deleted_before(session, unit.positions, unit.targets, io, scratch, budget.cores)
        frames.append(before.withColumn("fresh", f.lit(False)))
    together = reduce(DataFrame.unionByName, frames)
    key = "scope" if unit.granularity == "partition" and unit.format_version < 3 else "file"
    return together.repartition(key).sortWithinPartitions("file", "pos", "fresh").select("file", "pos", "fresh")
