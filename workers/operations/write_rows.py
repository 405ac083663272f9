"""Rows written as they come: the inputs of a partition one after another, and small files put together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyiceberg.io import FileIO

from producer.model.plan import Scope
from producer.model.staged import StagedDataFile
from workers.formats.output_files import OutputFiles, Written
from workers.model.rewrite_unit import Input, RewriteUnit
from workers.operations import inputs as lanes
from workers.operations.inputs import Job
from workers.operations.live_rows import LiveRows
from workers.runtime.context import UnitContext
from workers.runtime.parallel import read_ahead, run_tasks

#: Batches that are read before they are written.
_AHEAD: Final = 4


def copied(
    context: UnitContext, unit: RewriteUnit, rows: LiveRows, work: Sequence[Job], first: int = 0
) -> list[Written]:
    """Write each job's rows as they come; the first task notes its paths under ``first``."""
    dealt = lanes.balanced(work, context.budget.shuffle_tasks)

    until_cancelled = context.cancellation.until_set

    def copy(lane: int) -> Iterator[Written]:
        files = OutputFiles(unit, context.io, first + lane, context.scratch, context.budget.rows_bytes)
        for job in dealt[lane]:
            batches = until_cancelled(read_ahead(rows.read_all(job.parts), _AHEAD))
            yield from files.write(job.partition, batches, job.width, job.rows)

    return run_tasks(context, len(dealt), copy)


def merged(
    written: list[Written], unit: RewriteUnit, io: FileIO, copy: Callable[[Sequence[Job]], list[Written]]
) -> list[Written]:
    """Files that came out too small put together: several tasks may each have had too few rows at its end."""
    small: dict[Scope, list[StagedDataFile]] = defaultdict(list)
    for partition, file in written:
        if file.size < unit.sizes.least:
            small[partition].append(file)
    crowded = {partition: files for partition, files in small.items() if len(files) > 1}
    if not crowded:
        return written
    inputs = [(partition, [_again(file) for file in files]) for partition, files in crowded.items()]
    together = copy(lanes.jobs(inputs, unit.sizes, 1, lambda file: 0))
    replaced = {file.path for files in crowded.values() for file in files}
    for path in replaced:
        io.delete(path)
    return [*(item for item in written if item[1].path not in replaced), *together]


def _again(file: StagedDataFile) -> Input:
    """A file that this rewrite has written, to be read once more: whatever its rows inherit is stored in it."""
    return Input(index=-1, path=file.path, sequence_number=0, scope=0, record_count=file.records, size=file.size)
