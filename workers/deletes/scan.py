"""The data side of a match: key columns of data files with the position of each row, read by Spark's tasks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from workers.deletes.bloom_filter import Hashes, KeyFilter
from workers.deletes.delete_spool import Spool, arrow_schema, key_hashes, part_hashes, spark_schema
from workers.deletes.key_index import KeyIndex
from workers.deletes.position_runs import PositionRuns, PositionRunWriter, Positions
from workers.formats.key_reader import KeyBatch, KeyReader
from workers.model.convert_unit import KeyFile, Match
from workers.runtime.context import Cancellation, UnitContext
from workers.runtime.machine import trim_memory
from workers.runtime.parallel import balance, read_in_tasks, run_tasks
from workers.runtime.scratch import record_split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A file of more rows is read by several tasks, each with row groups of its own.
_SPLIT_ROWS: Final = 4_000_000
_TASKS_PER_CORE: Final = 3
#: What opening a file costs, in rows read in that time, and what a task of its own is worth.
FILE_ROWS: Final = 50_000
_TASK_ROWS: Final = 1_000_000
#: Rows that are looked up in an index at a time, about. Each time the pages of a large index are mapped again, so that
#: more are worth their memory.
_LOOKED_UP: Final = 1 << 15
_LOOKED_UP_IN_PARTS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or every n-th of its row groups."""

    file: KeyFile
    share: tuple[int, int]

    @property
    def cost(self) -> int:
        """In rows."""
        return self.file.record_count // self.share[1] + FILE_ROWS


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
    deletes: Spool
    scratch: Path

    def removed(self, context: UnitContext, pieces: Sequence[Piece], name: str) -> list[PositionRuns]:
        """The rows that the deletes, made into an index, remove; in files of scratch that begin with ``name``."""
        tasks = _tasks(pieces, context.budget.cores)

        cancellation = context.cancellation

        def work(number: int) -> Iterator[PositionRuns]:
            keys = KeyFilter.open(self.deletes.filter)
            index = KeyIndex(self.deletes.paths, self.deletes.parts, self.is_global)
            rows = _LOOKED_UP if index.stays_mapped else _LOOKED_UP_IN_PARTS
            found = (some for piece in tasks[number] for some in self._candidates(piece, keys, cancellation))
            with PositionRunWriter(self.scratch / f"{name}-{number}.positions") as writer:
                for several in group_candidates(found, rows, self.reader.batch_bytes):
                    for file, positions in removed_rows(index, several):
                        writer.add(file, positions)
                yield writer.close()
            trim_memory()

        return run_tasks(context, len(tasks), work)

    def passed(self, context: UnitContext, pieces: Sequence[Piece]) -> DataFrame:
        """All rows of the pieces that may match, as ``file, pos, scope, seq, k0, …``; all that do are among them."""
        tasks = _tasks(pieces, context.budget.cores)
        schema = pa.schema([("file", pa.int32()), ("pos", pa.int64()), *arrow_schema(self.reader.columns)])

        def rows(piece: Piece, keys: KeyFilter) -> Iterator[pa.RecordBatch]:
            file = piece.file
            for batch, found, _ in self._passed(piece, keys, Cancellation()):
                columns = [
                    pa.repeat(pa.scalar(file.index, pa.int32()), found.size),
                    pa.array(found + batch.start),
                    pa.repeat(pa.scalar(file.scope, pa.int32()), found.size),
                    pa.repeat(pa.scalar(file.sequence_number, pa.int64()), found.size),
                    *(column.take(pa.array(found)) for column in batch.columns),
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

        def read(task: int) -> Iterator[pa.RecordBatch]:
            keys = KeyFilter.open(self.deletes.filter)
            return (batch for piece in tasks[task] for batch in rows(piece, keys))

        columns = f"file int, pos bigint, {spark_schema(self.reader.columns)}"
        return read_in_tasks(context, len(tasks), columns, read)

    def _candidates(self, piece: Piece, keys: KeyFilter, cancellation: Cancellation) -> Iterator[Candidates]:
        for batch, found, hashes in self._passed(piece, keys, cancellation):
            columns = tuple(column.take(pa.array(found)) for column in batch.columns)
            hashes = part_hashes(self.is_global, piece.file, columns, hashes[found])
            yield Candidates(piece.file, found + batch.start, hashes, columns)

    def _passed(
        self, piece: Piece, keys: KeyFilter, cancellation: Cancellation
    ) -> Iterator[tuple[KeyBatch, Positions, Hashes]]:
        """Batches of a piece with the rows that may match, and the hashes by which the filter knows all rows.

        Row groups go by statistics, rows by the filter.
        """
        file = piece.file
        for batch in self.reader.read(file, share=piece.share, bounds=self.deletes.bounds):
            cancellation.check()
            hashes = key_hashes(self.is_global, file, batch.columns)
            found = np.flatnonzero(keys.may_contain(hashes))
            if found.size:
                yield batch, found, hashes
        record_split(self.scratch, file.index)


def _tasks(pieces: Sequence[Piece], cores: int) -> list[list[Piece]]:
    """Pieces by task, balanced by cost: small files share a task."""
    worth = sum(piece.cost for piece in pieces) // _TASK_ROWS
    tasks = balance([piece.cost for piece in pieces], max(1, min(cores * _TASKS_PER_CORE, worth)))
    return [[pieces[index] for index in task] for task in tasks]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of one data file that the filter of keys lets through."""

    file: KeyFile
    #: Ascending.
    positions: Positions
    #: As they are dealt to parts.
    hashes: Hashes
    #: Canonical key columns.
    keys: tuple[pa.Array, ...]

    @property
    def bytes(self) -> int:
        """Of the keys."""
        return sum(int(column.nbytes) for column in self.keys)


def group_candidates(candidates: Iterable[Candidates], most_rows: int, most_bytes: int) -> Iterator[list[Candidates]]:
    """Yield lists of candidates that reach one of the two limits; the last may not."""
    waiting: list[Candidates] = []
    rows = size = 0
    for some in candidates:
        waiting.append(some)
        rows += some.positions.size
        size += some.bytes
        if rows >= most_rows or size >= most_bytes:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def removed_rows(index: KeyIndex, several: Sequence[Candidates]) -> Iterator[tuple[int, Positions]]:
    """Yield the positions that the index removes with the index of their data file, in the order of the candidates."""
    counts = [some.positions.size for some in several]
    keys = [pa.concat_arrays(parts) for parts in zip(*(some.keys for some in several), strict=True)]
    scopes = np.repeat(np.array([some.file.scope for some in several], np.int64), counts)
    numbers = np.repeat(np.array([some.file.sequence_number for some in several], np.int64), counts)
    removed = index.removes(np.concatenate([some.hashes for some in several]), keys, scopes, numbers)
    ends = np.cumsum(counts)
    for some, mask in zip(several, np.split(removed, ends[:-1]), strict=True):
        yield some.file.index, some.positions[mask]
