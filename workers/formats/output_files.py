"""Where the files of a rewrite go: each path noted before it is written to, each file described to the driver."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Final, TypeAlias

import pyarrow as pa
from pyiceberg.io import FileIO

from producer.model.plan import Scope, Strategy
from producer.model.staged import StagedDataFile
from workers.arrow.schema import arrow_schema, written_schema
from workers.formats.data_file_writer import DataFileWriter
from workers.formats.journal import Journal
from workers.formats.rolling_writer import GroupLimits, RollingWriter
from workers.model.rewrite_unit import RewriteUnit

_GROUP_BYTES: Final = ("write.parquet.row-group-size-bytes", 128 << 20)
_GROUP_ROWS: Final = ("write.parquet.row-group-limit", 1 << 20)

#: A data file with its partition. Its scope is a number once all files of the unit are known.
Written: TypeAlias = tuple[Scope, StagedDataFile]


class Files:
    """Writes the data files of one task; their names carry the unit's, so that no two attempts share one.

    Args:
        unit: Where files go and how they are written.
        task: The task's number in the unit's journal.
        scratch: The attempt's; once it is gone, nobody would remove what is written.
        rows_bytes: Of rows that are gathered for a row group.
    """

    def __init__(self, unit: RewriteUnit, io: FileIO, task: int, scratch: Path, rows_bytes: int) -> None:
        self._unit = unit
        self._io = io
        self._task = task
        self._scratch = scratch
        self._journal = Journal(io, unit.journal)
        self._number = 0
        self._fields = written_schema(unit.schema, lineage=unit.lineage)
        self._schema = arrow_schema(self._fields)
        rows, size = (int(unit.properties.get(name, default)) for name, default in (_GROUP_ROWS, _GROUP_BYTES))
        self._limits = GroupLimits(max(1, rows), max(1, size), rows_bytes)

    def write(
        self, partition: Scope, batches: Iterable[pa.RecordBatch], width: float, rows: int | None
    ) -> list[Written]:
        """Write rows of one partition into files of the right size, and describe these.

        Args:
            partition: Where the rows go.
            batches: The rows.
            width: Bytes that a row takes in a file, as far as that is known.
            rows: How many will come, about; None when nobody knows.
        """
        with ExitStack() as stack:
            start = lambda: stack.enter_context(self._start(partition))  # noqa: E731
            writer = RollingWriter(start, self._unit.sizes, self._limits, width, rows)
            for batch in batches:
                writer.write(batch)
            return [(partition, file) for file in writer.close()]

    def _start(self, partition: Scope) -> DataFileWriter:
        """Begin the next file of a partition."""
        if not self._scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        name = f"{self._unit.name}-{self._task:05d}-{self._number:05d}.parquet"
        path = self._unit.location.new_data_location(name, partition if partition.label else None)  # type: ignore[arg-type]
        self._journal.note(self._task, self._number, path)
        self._number += 1
        return DataFileWriter(
            self._io, path, self._fields, self._schema, self._unit.properties, _sorted_ids(self._unit)
        )


def _sorted_ids(unit: RewriteUnit) -> set[int]:
    """Columns that rows are sorted by as they are."""
    if unit.strategy is not Strategy.SORT:
        return set()
    return {key.field_id for key in unit.order if key.transform == "identity"}
