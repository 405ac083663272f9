"""The data side of a match: key columns of data files with the position of each row, read by Spark's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
from workers.deletes import Stopped, arrow_schema, key_hashes, spark_schema
from workers.failures import told
from workers.fields import Leaf
from workers.keyfilter import KeyFilter
from workers.keyindex import KeyIndex
from workers.keys import KeyBatch, KeyReader
from workers.positionruns import PositionRuns, PositionRunWriter, Positions
from workers.spread import spread
from workers.unit import KeyFile, Match

#: A file of more rows is read by several tasks, each with row groups of its own.
_SPLIT_ROWS: Final = 4_000_000
_TASKS_PER_CORE: Final = 3
#: What opening a file costs, in rows read in that time, and what a task of its own is worth.
_FILE_ROWS: Final = 50_000
_TASK_ROWS: Final = 1_000_000
#: Rows that are looked up in an index at a time, at least, as far as a file has them.
_LOOKED_UP: Final = 1 << 15
#: Bytes of their keys that are enough, too.
_LOOKED_UP_BYTES: Final = 8 << 20


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
    """Reads the key columns of data files in Spark's tasks, and leaves out most rows that no delete can match."""

    reader: KeyReader
    is_global: bool
    #: File of the filter of the deletes' keys.
    keys: Path
    #: Of the deletes' keys.
    bounds: tuple[Bounds | None, ...]
    scratch: Path

    def removed(
        self,
        session: SparkSession,
        pieces: Sequence[Piece],
        cores: int,
        index: Path,
        name: str,
        stopped: Callable[[], bool],
    ) -> list[PositionRuns]:
        """The rows that the deletes of an index remove, in files of scratch that begin with ``name``."""
        tasks = _tasks(pieces, cores)

        def work(number: int) -> Iterator[PositionRuns]:
            keys, deletes = KeyFilter.open(self.keys), KeyIndex.open(index, self.is_global)
            with PositionRunWriter(self.scratch / f"{name}-{number}.positions") as writer:
                for piece in tasks[number]:
                    file = piece.file
                    for positions, columns in _together(self._candidates(piece, keys, stopped)):
                        gone = deletes.removes(columns, file.scope, file.sequence_number)
                        writer.add(file.index, positions[gone])
                yield writer.close()

        return spread(session, len(tasks), self.scratch, work)

    def candidates(self, session: SparkSession, pieces: Sequence[Piece], cores: int) -> DataFrame:
        """All rows of the pieces that may match, as ``file, pos, scope, seq, k0, …``; all that do are among them."""
        tasks = _tasks(pieces, cores)
        schema = pa.schema([("file", pa.int32()), ("pos", pa.int64()), *arrow_schema(self.reader.columns)])

        def rows(piece: Piece, keys: KeyFilter) -> Iterator[pa.RecordBatch]:
            file = piece.file
            for batch, found in self._candidates(piece, keys, lambda: False):
                columns = [
                    pa.repeat(pa.scalar(file.index, pa.int32()), found.size),
                    pa.array(found + batch.start),
                    pa.repeat(pa.scalar(file.scope, pa.int32()), found.size),
                    pa.repeat(pa.scalar(file.sequence_number, pa.int64()), found.size),
                    *(column.take(pa.array(found)) for column in batch.columns),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with told(self.scratch):
                keys = KeyFilter.open(self.keys)
                work = (piece for batch in batches for index in batch.column(0).to_pylist() for piece in tasks[index])
                yield from gathered(batch for piece in work for batch in rows(piece, keys))

        ids = session.range(0, len(tasks), 1, len(tasks))
        return ids.mapInArrow(read, f"file int, pos bigint, {spark_schema(self.reader.columns)}")

    def _candidates(
        self, piece: Piece, keys: KeyFilter, stopped: Callable[[], bool]
    ) -> Iterator[tuple[KeyBatch, Positions]]:
        """Batches of a piece with the rows that may match: row groups go by statistics, rows by the filter."""
        file = piece.file
        for batch in self.reader.read(file, share=piece.share, keep=self._keep):
            if stopped():
                raise Stopped
            found = np.flatnonzero(keys.may_contain(key_hashes(self.is_global, file, batch.columns)))
            if found.size:
                yield batch, found
        count(self.scratch, file.index)

    def _keep(self, group: pq.RowGroupMetaData, leaves: Sequence[Leaf | None]) -> bool:
        return may_match(group, self.reader.columns, leaves, self.bounds)


def _together(
    candidates: Iterator[tuple[KeyBatch, Positions]],
) -> Iterator[tuple[Positions, list[pa.Array]]]:
    """Positions and keys of the candidates of several batches: together they are looked up in half the time."""
    waiting: list[tuple[Positions, list[pa.Array]]] = []
    rows = size = 0
    for batch, found in candidates:
        taken = pa.array(found)
        columns = [column.take(taken) for column in batch.columns]
        waiting.append((found + batch.start, columns))
        rows, size = rows + found.size, size + sum(column.nbytes for column in columns)
        if rows >= _LOOKED_UP or size >= _LOOKED_UP_BYTES:
            yield _joined(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _joined(waiting)


def _joined(some: Sequence[tuple[Positions, list[pa.Array]]]) -> tuple[Positions, list[pa.Array]]:
    positions, columns = zip(*some, strict=True)
    return np.concatenate(positions), [pa.concat_arrays(parts) for parts in zip(*columns, strict=True)]


def _tasks(pieces: Sequence[Piece], cores: int) -> list[list[Piece]]:
    """Pieces dealt to tasks, the dearest first to the least laden: about even, and small files share a task."""
    worth = sum(piece.cost for piece in pieces) // _TASK_ROWS
    tasks = dealt([piece.cost for piece in pieces], max(1, min(cores * _TASKS_PER_CORE, worth)))
    return [[pieces[index] for index in task] for task in tasks]
