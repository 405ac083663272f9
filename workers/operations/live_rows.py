"""The live rows of a rewrite's inputs, and the count of those that were read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from workers.deletes.resolve import deleted_positions
from workers.formats.row_reader import RowReader
from workers.model.rewrite_unit import Input
from workers.operations.inputs import Part
from workers.runtime.scratch import record_rows, record_split

#: What parts of inputs are counted under when they were read to their end.
READ: Final = "files-read"


@dataclass(frozen=True)
class LiveRows:
    """Reads inputs without the rows that deletes remove.

    Args:
        reader: Of the columns that are wanted.
        scratch: Where the deletes lie, resolved.
    """

    reader: RowReader
    scratch: Path

    @property
    def schema(self) -> pa.Schema:
        """Of the rows, with field ids."""
        return self.reader.schema

    def lost(self, file: Input) -> int:
        """How many rows of a file are deleted."""
        positions = deleted_positions(self.scratch, file.index)
        return 0 if positions is None else len(positions)

    def look(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Rows of a part that are read once more, or less than to their end: they count for nothing."""
        return self.reader.read(part.file, deleted_positions(self.scratch, part.file.index), part.share)

    def read(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Rows of a part, which count as read."""
        seen = live = 0

        def see(rows: int) -> None:
            nonlocal seen
            seen += rows

        for batch in self.reader.read(part.file, deleted_positions(self.scratch, part.file.index), part.share, see):
            live += batch.num_rows
            yield batch
        record_rows(self.scratch, seen, live)
        record_split(self.scratch, part.file.index, READ)

    def read_all(self, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        """Rows of parts, one after another; of those that are no inputs, they count for nothing."""
        for part in parts:
            yield from self.read(part) if part.file.index >= 0 else self.look(part)
