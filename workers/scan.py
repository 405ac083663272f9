"""The data side of a match: key columns of data files with the position of each row, read by Spark's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from workers.batches import gathered
from workers.bounds import Bounds, may_match
from workers.counter import count
from workers.dealing import dealt
from workers.deletes import arrow_schema, key_hashes, spark_schema
from workers.failures import told
from workers.fields import Leaf
from workers.keyfilter import KeyFilter
from workers.keys import KeyReader
from workers.unit import KeyFile, Match

#: A file of more rows is read by several tasks, each with row groups of its own.
_SPLIT_ROWS: Final = 4_000_000
_TASKS_PER_CORE: Final = 3
#: What opening a file costs, in rows read in that time, and what a task of its own is worth.
_FILE_ROWS: Final = 50_000
_TASK_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or every n-th of its row groups."""

    file: KeyFile
    share: tuple[int, int]

    @property
    def cost(self) -> int:
        """In rows."""
        return self.file.record_count // self.share[1] + _FILE_ROWS


def pieces(match: Match) -> list[Piece]:
    """What is read of a match's data: files that some delete is newer than, large ones in several pieces."""
    newest: dict[int, int] = defaultdict(int)
    for delete in match.deletes:
        scope = 0 if match.is_global else delete.scope
        newest[scope] = max(newest[scope], delete.sequence_number)
    return [
        Piece(file, (part, parts))
        for file in match.data
        if file.sequence_number < newest[0 if match.is_global else file.scope]
        for parts in [max(1, -(-file.record_count // _SPLIT_ROWS))]
        for part in range(parts)
    ]


@dataclass(frozen=True, slots=True)
class Scan:
    """Reads data files in Spark's tasks: rows that may match, as ``file, pos, scope, seq, k0, …``."""

    reader: KeyReader
    is_global: bool
    #: File of the filter of the deletes' keys.
    keys: Path
    #: Of the deletes' keys.
    bounds: tuple[Bounds | None, ...]
    scratch: Path

    @property
    def schema(self) -> pa.Schema:
        """What :meth:`rows` gives."""
        return pa.schema([("file", pa.int32()), ("pos", pa.int64()), *arrow_schema(self.reader.columns)])

    def frame(self, session: SparkSession, pieces: Sequence[Piece], cores: int) -> DataFrame:
        """All rows of the pieces that may match; all that do match are among them."""
        tasks = _tasks(pieces, cores)
        ids = session.range(0, len(tasks), 1, len(tasks))

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with told(self.scratch):
                keys, schema = KeyFilter.open(self.keys), self.schema
                work = (piece for batch in batches for index in batch.column(0).to_pylist() for piece in tasks[index])
                yield from gathered(rows for piece in work for rows in self.rows(piece, keys, schema))

        return ids.mapInArrow(read, f"file int, pos bigint, {spark_schema(self.reader.columns)}")

    def rows(self, piece: Piece, keys: KeyFilter, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Rows of one piece. Row groups are left out by their statistics, rows by the filter."""
        file = piece.file
        for batch in self.reader.read(file, share=piece.share, keep=self._keep):
            found = np.flatnonzero(keys.may_contain(key_hashes(self.is_global, file, batch.columns)))
            if not found.size:
                continue
            rows = pa.array(found)
            yield pa.RecordBatch.from_arrays(
                [
                    pa.repeat(pa.scalar(file.index, pa.int32()), found.size),
                    pa.array(found + batch.start),
                    pa.repeat(pa.scalar(file.scope, pa.int32()), found.size),
                    pa.repeat(pa.scalar(file.sequence_number, pa.int64()), found.size),
                    *(column.take(rows) for column in batch.columns),
                ],
                schema=schema,
            )
        count(self.scratch, file.index)

    def _keep(self, group: pq.RowGroupMetaData, leaves: Sequence[Leaf | None]) -> bool:
        return may_match(group, self.reader.columns, leaves, self.bounds)


def _tasks(pieces: Sequence[Piece], cores: int) -> list[list[Piece]]:
    """Pieces dealt to tasks, the dearest first to the least laden: about even, and small files share a task."""
    worth = sum(piece.cost for piece in pieces) // _TASK_ROWS
    tasks = dealt([piece.cost for piece in pieces], max(1, min(cores * _TASKS_PER_CORE, worth)))
    return [[pieces[index] for index in task] for task in tasks]
