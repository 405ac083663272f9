"""The rewriting of one unit: its deletes resolved, its live rows written into files of the right size."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import Event
from typing import Final

import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark import TaskContext
from pyspark.sql import SparkSession

from workers import lanes
from workers.ahead import ahead
from workers.counter import count, counted, tallied, tally
from workers.data_files import DataFileWriter
from workers.errors import TaskFailed
from workers.failures import heard, told
from workers.lanes import Job, Part
from workers.machine import Budget
from workers.placing import Files, described, written_of
from workers.resolve import Deletes, gone
from workers.rewriting import Arrangement, Input, Partition, RewriteResult, RewriteUnit, WrittenFile
from workers.rolling import GroupLimits, RollingWriter
from workers.rowkeys import key_fields
from workers.rows import RowReader
from workers.rowtypes import written_schema
from workers.shuffle import Layout, arranged
from workers.supervisor import supervised

#: What a Spark task gives back for each file.
RESULT: Final = "file string"
_READ: Final = "files-read"
#: Batches that are read before they are written.
_AHEAD: Final = 4
_GROUP_BYTES: Final = ("write.parquet.row-group-size-bytes", 128 << 20)
_GROUP_ROWS: Final = ("write.parquet.row-group-limit", 1 << 20)

Written = tuple[Partition, WrittenFile]
Batches = Iterator[pa.RecordBatch]


def rewrite(
    unit: RewriteUnit,
    io: FileIO,
    session: SparkSession,
    budget: Budget,
    scratch: Path,
    progress: Callable[[int, int], None] | None = None,
) -> RewriteResult:
    """Write a unit's live rows anew.

    Every path is noted in the unit's journal before it is written to, by one of :func:`tasks_of` tasks. Whatever is
    raised in the calling thread meanwhile, by ``progress`` or by a signal handler, ends the work in Spark as well.

    Args:
        unit: What is read and how is written.
        io: The table's file access; goes to Spark's tasks.
        session: The session that :func:`workers.session.session` made for this budget.
        budget: Memory and cores.
        scratch: An empty folder, deleted by the caller.
        progress: Called in this thread with data files read and in all, when that has changed.

    Raises:
        CorruptFile, UnsupportedFile: a file cannot be used; trying again does not help.
        TaskFailed: a Spark task failed for another reason.
    """
    work = Rewrite(unit, io, session, budget, scratch)
    last = -1

    def tick() -> None:
        nonlocal last
        done = work.read
        if progress is not None and done != last:
            last = done
            progress(done, len(unit.inputs))

    tick()
    with heard(scratch):
        return supervised(session, f"icefleet {unit.name} {secrets.token_hex(4)}", work.result, tick)


def tasks_of(budget: Budget) -> int:
    """How many tasks note paths in a unit's journal: those that write first, and those that merge small files."""
    return 2 * budget.shuffle_tasks


class Rewrite:
    """One rewrite; its steps share what a task needs to know."""

    def __init__(self, unit: RewriteUnit, io: FileIO, session: SparkSession, budget: Budget, scratch: Path) -> None:
        self._unit = unit
        self._io = io
        self._session = session
        self._budget = budget
        self._scratch = scratch
        self._pieces: Counter[int] = Counter(file.index for file in unit.inputs)
        fields = written_schema(unit.schema, lineage=unit.lineage)
        self._reader = RowReader(io, fields, unit.name_mapping, budget.batch_bytes)

    @property
    def read(self) -> int:
        """Data files that were read to their end."""
        return counted(self._scratch, self._pieces, _READ)

    def result(self, stop: Event) -> RewriteResult:
        """Do it all; ``stop`` says that nobody waits for it any more."""
        deletes = Deletes(self._unit.deletes, self._io, self._budget, self._scratch, noted=True)
        deletes.spool(self._session, stop)
        through_spark = self._unit.arrangement is not Arrangement.NONE or None in self._unit.scopes
        written = self._arranged() if through_spark else self._copied(self._jobs(), 0)
        read, live = tallied(self._scratch)
        if live != sum(file.record_count for _, file in written):
            raise TaskFailed(f"{live} rows are live, {sum(file.record_count for _, file in written)} were written")
        return RewriteResult(tuple(self._merged(written)), read, read - live, deletes.named())

    def _jobs(self) -> list[Job]:
        """Everything that is written as it comes, by partition."""
        by_partition = lanes.by_partition(self._unit.inputs, self._unit.scopes)
        work = lanes.jobs(by_partition, self._unit.sizes, self._budget.shuffle_tasks, self._lost)
        self._pieces = Counter(part.file.index for job in work for part in job.parts)
        return work

    def _arranged(self) -> list[Written]:
        """Rows through Spark, in order or on the way to their partitions."""
        inputs, sizes = self._unit.inputs, self._unit.sizes
        live = sum(max(0, file.record_count - self._lost(file)) for file in inputs)
        width = sum(file.size for file in inputs) / max(1, sum(file.record_count for file in inputs))
        tasks = min(sizes.files(live * width), self._budget.shuffle_tasks)
        parts = lanes.parts(inputs, self._budget.cores)
        self._pieces = Counter(part.file.index for part in parts)
        keys = replace(self._reader, fields=key_fields(self._unit))
        made = arranged(
            self._session,
            self._unit,
            (self._reader.schema, partial(_read_part, self._reader, self._scratch, counted=True)),
            (keys.schema, partial(_read_part, keys, self._scratch, counted=False)),
            parts,
            tasks,
            self._budget,
            self._scratch,
        )
        # A partition's rows are known only where there is one.
        expected = live // tasks if len(set(self._unit.scopes)) == 1 and None not in self._unit.scopes else None
        rows = made.frame.mapInArrow(self._placer(made.layout, expected, width), RESULT).collect()
        return [written_of(row.file) for row in rows]

    def _placer(self, layout: Layout, expected: int | None, width: float) -> Callable[[Batches], Batches]:
        unit, io, scratch, limits = self._unit, self._io, self._scratch, self._limits

        def place(batches: Batches) -> Batches:
            with told(scratch):
                context = TaskContext.get()
                files = Files(unit, io, context.partitionId() if context else 0, scratch)
                for partition, runs in groupby(layout.runs(batches), key=itemgetter(0)):
                    with ExitStack() as stack:
                        start = partial(_entered, stack, files, partition)
                        writer = RollingWriter(start, unit.sizes, limits, width, expected)
                        for _, rows in runs:
                            writer.write(rows)
                        written = writer.close()
                    yield _described((partition, file) for file in written)

        return place

    def _lost(self, file: Input) -> int:
        positions = gone(self._scratch, file.index)
        return 0 if positions is None else len(positions)

    def _copied(self, work: Sequence[Job], first: int) -> list[Written]:
        """Write each job's rows as they come; the first task notes its paths under ``first``."""
        dealt = lanes.dealt(work, self._budget.shuffle_tasks)
        ids = self._session.range(0, len(dealt), 1, len(dealt))
        rows = ids.mapInArrow(self._copier(dealt, first), RESULT).collect()
        return [written_of(row.file) for row in rows]

    def _copier(self, dealt: Sequence[Sequence[Job]], first: int) -> Callable[[Batches], Batches]:
        unit, io, scratch, reader, limits = self._unit, self._io, self._scratch, self._reader, self._limits

        def copy(batches: Batches) -> Batches:
            with told(scratch):
                for lane in (lane for batch in batches for lane in batch.column(0).to_pylist()):
                    files = Files(unit, io, first + lane, scratch)
                    for job in dealt[lane]:
                        with ExitStack() as stack:
                            start = partial(_entered, stack, files, job.partition)
                            writer = RollingWriter(start, unit.sizes, limits, job.width, job.rows)
                            for rows in ahead(_read(reader, job, scratch), _AHEAD):
                                writer.write(rows)
                            written = writer.close()
                        yield _described((job.partition, file) for file in written)

        return copy

    def _merged(self, written: list[Written]) -> list[Written]:
        """Files that came out too small put together: several tasks may each have had too few rows at its end."""
        small: dict[Partition, list[WrittenFile]] = defaultdict(list)
        for partition, file in written:
            if file.size < self._unit.sizes.least:
                small[partition].append(file)
        crowded = {partition: files for partition, files in small.items() if len(files) > 1}
        if not crowded:
            return written
        inputs = [(partition, [_again(file) for file in files]) for partition, files in crowded.items()]
        merged = self._copied(lanes.jobs(inputs, self._unit.sizes, 1, lambda file: 0), self._budget.shuffle_tasks)
        replaced = {file.path for files in crowded.values() for file in files}
        for path in replaced:
            self._io.delete(path)
        return [*(item for item in written if item[1].path not in replaced), *merged]

    @property
    def _limits(self) -> GroupLimits:
        rows, size = (int(self._unit.properties.get(name, default)) for name, default in (_GROUP_ROWS, _GROUP_BYTES))
        return GroupLimits(max(1, rows), max(1, size), self._budget.rows_bytes)


def _entered(stack: ExitStack, files: Files, partition: Partition) -> DataFileWriter:
    return stack.enter_context(files.start(partition))


def _read(reader: RowReader, job: Job, scratch: Path) -> Batches:
    """Live rows of a job's parts, one after another."""
    for part in job.parts:
        yield from _read_part(reader, scratch, part, counted=part.file.index >= 0)


def _read_part(reader: RowReader, scratch: Path, part: Part, *, counted: bool) -> Batches:
    """Live rows of one part, which are ``counted`` unless it is read a second time."""
    seen = live = 0

    def see(rows: int) -> None:
        nonlocal seen
        seen += rows

    for batch in reader.read(part.file, gone(scratch, part.file.index), part.share, see):
        live += batch.num_rows
        yield batch
    if counted:
        tally(scratch, seen, live)
        count(scratch, part.file.index, _READ)


def _again(file: WrittenFile) -> Input:
    """A file that this rewrite has written, to be read once more: whatever its rows inherit is stored in it."""
    return Input(index=-1, path=file.path, sequence_number=0, scope=0, record_count=file.record_count, size=file.size)


def _described(written: Iterable[Written]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([described(*item) for item in written], pa.string())], names=["file"])
