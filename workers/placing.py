"""Where the files of a rewrite go: each path noted before it is written to, each file described to the driver."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO

from workers.data_files import DataFileWriter
from workers.journal import Journal
from workers.rewriting import Partition, RewriteUnit, WrittenFile
from workers.rowtypes import arrow_schema, written_schema


class Files:
    """Begins the data files of one task; their names carry the unit's, so that no two attempts share one.

    Args:
        unit: Where files go and how they are written.
        task: The task's number in the unit's journal.
        scratch: The attempt's; once it is gone, nobody would remove what is written.
    """

    def __init__(self, unit: RewriteUnit, io: FileIO, task: int, scratch: Path) -> None:
        self._unit = unit
        self._io = io
        self._task = task
        self._scratch = scratch
        self._journal = Journal(io, unit.journal)
        self._number = 0
        self._fields = written_schema(unit.schema, lineage=unit.lineage)
        self._schema = arrow_schema(self._fields)

    def start(self, partition: Partition) -> DataFileWriter:
        """Begin the next file of a partition."""
        if not self._scratch.is_dir():
            raise RuntimeError("the attempt that this task belongs to has ended")
        name = f"{self._unit.name}-{self._task:05d}-{self._number:05d}.parquet"
        path = self._unit.location.new_data_location(name, partition if partition.path else None)  # type: ignore[arg-type]
        self._journal.note(self._task, self._number, path)
        self._number += 1
        return DataFileWriter(self._io, path, self._fields, self._schema, self._unit.properties)


def described(partition: Partition, written: WrittenFile) -> str:
    """A written file as text, for the way out of a Spark task."""
    return json.dumps({"partition": asdict(partition), "written": asdict(written)}, default=bytes.hex)


def written_of(text: str) -> tuple[Partition, WrittenFile]:
    """The file that a task has described."""
    fields = json.loads(text)
    partition, written = fields["partition"], fields["written"]
    partition["values"] = tuple(partition["values"])
    for name, values in written.items():
        if isinstance(values, dict):
            written[name] = {int(field_id): _value(name, value) for field_id, value in values.items()}
    written["split_offsets"] = tuple(written["split_offsets"])
    return Partition(**partition), WrittenFile(**written)


def _value(name: str, value: Any) -> Any:
    return bytes.fromhex(value) if name.endswith("_bounds") else value
