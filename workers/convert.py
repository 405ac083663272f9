"""The conversion of one unit: match, subtract what was deleted before, write."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from threading import Event

from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.canonical import arrow_type
from workers.counter import counted
from workers.errors import UnsupportedFile
from workers.failures import heard
from workers.machine import Budget
from workers.output import SCHEMA, staged_of, write
from workers.resolve import Deletes
from workers.scan import pieces
from workers.supervisor import supervised
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

    Targets that lose no further row get nothing. Nothing but the paths of :func:`paths` is written. Whatever is raised
    in the calling thread meanwhile, by ``progress`` or by a signal handler, ends the work in Spark as well.

    Args:
        unit: What is read and where is written.
        io: The table's file access; goes to Spark's tasks.
        session: The session that :func:`workers.session.session` made for this budget.
        budget: Memory and cores.
        scratch: An empty folder, deleted by the caller.
        progress: Called in this thread with data files done and in all, when that has changed.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
        TaskFailed: a Spark task failed for another reason.
    """
    _check_keys(unit)
    expected = Counter(piece.file.index for match in unit.matches for piece in pieces(match))
    last = -1

    def tick() -> None:
        nonlocal last
        done = counted(scratch, expected)
        if progress is not None and done != last:
            last = done
            progress(done, len(expected))

    tick()
    with heard(scratch):
        return supervised(
            session,
            f"icefleet {unit.name} {secrets.token_hex(4)}",
            lambda stop: _converted(unit, io, session, budget, scratch, stop),
            tick,
        )


def paths(unit: ConversionUnit, budget: Budget) -> Iterator[str]:
    """Every path that the conversion of a unit may write."""
    if unit.format_version >= 3:
        yield from (unit.puffin_destination.format(task=task) for task in range(budget.shuffle_tasks))
    elif unit.granularity == "partition":
        yield from unit.scope_destinations.values()
    else:
        yield from (target.destination for target in unit.targets)


def _check_keys(unit: ConversionUnit) -> None:
    for match in unit.matches:
        for column in match.columns if match.deletes else ():
            try:
                arrow_type(column.type)
            except TypeError as error:
                raise UnsupportedFile(match.deletes[0].path, f"{error} (field {column.field_id})") from error


def _converted(
    unit: ConversionUnit, io: FileIO, session: SparkSession, budget: Budget, scratch: Path, stop: Event
) -> ConversionResult:
    deletes = Deletes(unit, io, budget, scratch, noted=unit.format_version >= 3)
    fresh, before = deletes.fresh(session, stop), deletes.before(session)
    written = []
    if fresh is not None:
        frames = [fresh.withColumn("fresh", f.lit(True))]
        frames += [before.withColumn("fresh", f.lit(False))] if before is not None else []
        written = _sorted(unit, frames).mapInArrow(write(unit, io, scratch), SCHEMA).collect()
    elif before is not None:
        before.count()  # notes which data files are named
    read = [match for match in unit.matches if pieces(match)]
    staged = [staged_of(row.kind, row.written) for row in written]
    return ConversionResult(
        deletes=tuple(item for item in staged if isinstance(item, StagedDelete)),
        vectors=tuple(item for item in staged if isinstance(item, StagedVector)),
        named=deletes.named(),
        rows_read=sum(piece.file.record_count for match in read for piece in pieces(match) if piece.share[0] == 0),
        new_positions=sum(row.new_positions for row in written),
    )


def _sorted(unit: ConversionUnit, frames: list[DataFrame]) -> DataFrame:
    """All positions; each target in one task, ascending, with what was deleted before (not ``fresh``) in front."""
    together = reduce(DataFrame.unionByName, frames)
    key = "scope" if unit.granularity == "partition" and unit.format_version < 3 else "file"
    return together.repartition(key).sortWithinPartitions("file", "pos", "fresh").select("file", "pos", "fresh")
