"""A sample of the keys of a unit's rows: only the key columns are read, and few rows of them are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from workers.ladder import comparable
from workers.pieces import Batches, P, read_by_tasks
from workers.rowkeys import RowKeys
from workers.storage import spark_ddl

#: Rows; ranges come out some percent uneven.
_ROWS: Final = 1 << 16
#: Of one value: what lies between rows need not be a value itself.
_BYTES: Final = 128
#: Rows of one piece are numbered below this.
_PIECE: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class Sample:
    """Keys of rows picked evenly, the beginnings of long ones."""

    parts: pa.Array
    columns: tuple[pa.Array, ...]
    #: Where the rows were in the inputs.
    places: pa.Array


def sampled(
    session: SparkSession,
    keys: RowKeys,
    schema: pa.Schema,
    pieces: Sequence[P],
    read: Callable[[P], Batches],
    cores: int,
    scratch: Path,
) -> Sample:
    """Read the key columns of all pieces, and pick rows.

    Args:
        session: What reads them, side by side.
        keys: Of rows of this schema.
        schema: Of what ``read`` gives.
        pieces: What there is.
        read: Rows of a piece: its key columns.
        cores: Of the session.
        scratch: Where errors are told.
    """
    fields = pa.schema(
        [
            ("part", pa.string()),
            *((f"k{i}", type_) for i, type_ in enumerate(_types(keys, schema))),
            ("place", pa.int64()),
        ]
    )
    step = max(1, sum(piece.rows for piece in pieces) // _ROWS)

    def rows(number: int, piece: P) -> Batches:
        start = 0
        for batch in read(piece):
            picked = pa.array(picks(number, start, batch.num_rows, step))
            few, places = batch.take(picked), pc.add(picked, place_of(number, start))
            columns = [_cut(comparable(column)) for column in keys.columns(few)]
            yield pa.RecordBatch.from_arrays([keys.parts(piece.file, few), *columns, places], schema=fields)
            start += batch.num_rows

    table = read_by_tasks(session, pieces, cores, scratch, rows, spark_ddl(fields)).toArrow().combine_chunks()
    parts, *columns, places = (_whole(column) for column in table.columns)
    return Sample(parts, tuple(columns), places)


def place_of(number: int, row: int) -> int:
    """Where a row is in the inputs, by the number of its piece: ascending as they are."""
    return number * _PIECE + row


def picks(number: int, start: int, rows: int, step: int) -> npt.NDArray[np.int64]:
    """Indexes in a batch of the rows that are picked: one of each ``step``, anywhere in it."""
    blocks = np.arange(start // step, (start + rows - 1) // step + 1, dtype=np.int64) if rows else np.zeros(0, np.int64)
    mixed = (blocks.astype(np.uint64) + np.uint64(number + 1)) * np.uint64(0x9E3779B97F4A7C15)
    found: npt.NDArray[np.int64] = blocks * step + ((mixed >> np.uint64(33)) % np.uint64(step)).astype(np.int64) - start
    return found[(found >= 0) & (found < rows)]


def _types(keys: RowKeys, schema: pa.Schema) -> list[pa.DataType]:
    empty = pa.RecordBatch.from_pylist([], schema=schema)
    return [comparable(column).type for column in keys.columns(empty)]


def _cut(column: pa.Array) -> pa.Array:
    return pc.binary_slice(column, 0, _BYTES) if pa.types.is_binary(column.type) else column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
