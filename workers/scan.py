"""The data side of a match: key columns of data files with the position of each row, read by Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from workers.canonical import arrow_type, spark_type
from workers.counter import count
from workers.deletes import key_names
from workers.failures import told
from workers.keys import KeyBatch, KeyReader
from workers.unit import KeyColumn, KeyFile

#: A file of more rows is read by several tasks, each with row groups of its own.
_SPLIT_ROWS = 8_000_000
_TASKS_PER_CORE = 4
#: Arrow hashes the deletes anew for each batch: that pays while they are not many times as many as the batch's rows.
_SET_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    """A data file, or every n-th of its row groups."""

    file: KeyFile
    share: tuple[int, int]


def scan(
    session: SparkSession,
    files: Sequence[KeyFile],
    reader: KeyReader,
    scratch: Path,
    cores: int,
    keys: Path | None,
    first: frozenset[int],
) -> DataFrame:
    """Rows of data files as ``file, pos, scope, seq, k0, …``.

    Args:
        files: What is read.
        reader: How.
        scratch: Where progress and errors go.
        cores: For the number of tasks.
        keys: The deletes' keys; rows that equal none of them, column by column, are left out.
        first: Indexes of the files that this scan is the first one to read; they are counted.
    """
    tasks = _tasks(files, cores)
    schema = _schema(reader.columns)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            sets = _value_sets(keys, len(reader.columns))
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    for piece in tasks[index]:
                        yield from _rows(reader, piece, sets, schema)
                        if piece.share[0] == 0 and piece.file.index in first:
                            count(scratch)

    ids = session.range(0, len(tasks), 1, len(tasks))
    ddl = ", ".join(f"{n} {spark_type(c.type)}" for n, c in zip(key_names(reader.columns), reader.columns, strict=True))
    return ids.mapInArrow(read, f"file int, pos bigint, scope int, seq bigint, {ddl}")


def _tasks(files: Sequence[KeyFile], cores: int) -> list[list[Piece]]:
    """Pieces dealt to tasks, the largest first to the emptiest: about even, and small files share a task."""
    pieces = [
        Piece(file, (part, parts))
        for file in files
        for parts in [max(1, -(-file.record_count // _SPLIT_ROWS))]
        for part in range(parts)
    ]
    number = min(len(pieces), cores * _TASKS_PER_CORE)
    tasks: list[list[Piece]] = [[] for _ in range(number)]
    loads = [0] * number
    for piece in sorted(pieces, key=lambda p: -p.file.record_count // p.share[1]):
        task = loads.index(min(loads))
        tasks[task].append(piece)
        loads[task] += piece.file.record_count // piece.share[1] + 1
    return tasks


def _rows(
    reader: KeyReader, piece: Piece, sets: Sequence[pa.Array] | None, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in reader.read(piece.file, share=piece.share):
        positions = pa.array(range(0), pa.int64()) if not len(batch) else _positions(batch)
        arrays = [positions, *batch.columns]
        if sets is not None:
            mask = _may_match(batch.columns, sets)
            arrays = arrays if mask is None else [array.filter(mask) for array in arrays]
        rows = len(arrays[0])
        if rows:
            file, scope = (pa.repeat(pa.scalar(n, pa.int32()), rows) for n in (piece.file.index, piece.file.scope))
            seq = pa.repeat(pa.scalar(piece.file.sequence_number, pa.int64()), rows)
            yield pa.RecordBatch.from_arrays([file, arrays[0], scope, seq, *arrays[1:]], schema=schema)


def _positions(batch: KeyBatch) -> pa.Array:
    import numpy as np

    return pa.array(np.arange(batch.start, batch.start + len(batch), dtype=np.int64))


def _value_sets(keys: Path | None, columns: int) -> list[pa.Array] | None:
    """The distinct values of each key column among the deletes, mapped from a file that all tasks share."""
    if keys is None:
        return None
    with pa.memory_map(str(keys)) as source:
        table = pa.ipc.open_file(source).read_all()
    return [table.column(f"k{index}").unique() for index in range(columns)]


def _may_match(columns: Iterable[pa.Array], sets: Sequence[pa.Array]) -> pa.Array | None:
    """Rows whose every key is some delete's, null equals null; None where it is cheaper to let the join find out."""
    mask = None
    for column, values in zip(columns, sets, strict=True):
        if len(values) > _SET_FACTOR * len(column):
            continue
        found = pc.is_in(column, value_set=values)
        mask = found if mask is None else pc.and_(mask, found)
    return mask


def _schema(columns: tuple[KeyColumn, ...]) -> pa.Schema:
    keys = [(name, arrow_type(column.type)) for name, column in zip(key_names(columns), columns, strict=True)]
    return pa.schema([("file", pa.int32()), ("pos", pa.int64()), ("scope", pa.int32()), ("seq", pa.int64()), *keys])
