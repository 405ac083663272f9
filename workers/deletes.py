"""The delete side of a match: each equality delete file is read once, into memory or straight into Spark."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.canonical import arrow_type, spark_type
from workers.failures import told
from workers.keys import KeyReader
from workers.unit import KeyColumn, KeyFile, Match

#: Bytes that a key of unknown length is taken for when it is counted against the budget.
_KEY_BYTES = 48
_FIXED_BYTES = 16


@dataclass(frozen=True, slots=True)
class Deletes:
    """The deletes of a match as Spark sees them."""

    frame: DataFrame
    #: An Arrow file of the keys, to drop what cannot match before it reaches Spark; None when there are too many.
    keys: Path | None


def key_names(columns: tuple[KeyColumn, ...]) -> list[str]:
    """Names of the key columns in frames."""
    return [f"k{index}" for index in range(len(columns))]


def fits(match: Match, broadcast_bytes: int) -> bool:
    """Whether a match's deletes may be held in memory, going by what the manifests say of them.

    Keys of unknown length may be long: then the files tell, and these are at least as large in memory.
    """
    fixed: int = sum(pa.types.is_primitive(arrow_type(column.type)) for column in match.columns)
    row = _FIXED_BYTES + fixed * _FIXED_BYTES + (len(match.columns) - fixed) * _KEY_BYTES
    rows = sum(file.record_count for file in match.deletes)
    return max(rows * row, sum(file.size for file in match.deletes)) <= broadcast_bytes


def read_small(session: SparkSession, match: Match, reader: KeyReader, scratch: Path, name: str) -> Deletes:
    """Deletes that fit into memory: read here, each key kept once with its highest sequence number, and broadcast."""
    with ThreadPoolExecutor(4) as pool:
        parts = [
            batch for batches in pool.map(lambda file: list(_rows(reader, file)), match.deletes) for batch in batches
        ]
    table = pa.Table.from_batches(parts, _schema(match.columns))
    names = ["scope", *key_names(match.columns)]
    table = table.group_by(names).aggregate([("seq", "max")]).rename_columns({"seq_max": "seq"})
    path = scratch / f"{name}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    frame = session.createDataFrame(table.combine_chunks())
    return Deletes(f.broadcast(frame), path)


def read_large(session: SparkSession, match: Match, reader: KeyReader, scratch: Path, tasks: int) -> Deletes:
    """Deletes that do not: read by Spark's tasks, shuffled and spilled."""
    shares = [match.deletes[index::tasks] for index in range(min(tasks, len(match.deletes)))]
    schema = _schema(match.columns)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    for file in shares[index]:
                        yield from (rows.cast(schema) for rows in _rows(reader, file))

    ids = session.range(0, len(shares), 1, len(shares))
    return Deletes(ids.mapInArrow(read, spark_schema(match.columns)), None)


def spark_schema(columns: tuple[KeyColumn, ...]) -> str:
    """Scope, keys and sequence number as Spark's DDL names them."""
    keys = (f"{name} {spark_type(column.type)}" for name, column in zip(key_names(columns), columns, strict=True))
    return ", ".join(("scope int", *keys, "seq bigint"))


def _schema(columns: tuple[KeyColumn, ...]) -> pa.Schema:
    keys = [(name, arrow_type(column.type)) for name, column in zip(key_names(columns), columns, strict=True)]
    return pa.schema([("scope", pa.int32()), *keys, ("seq", pa.int64())])


def _rows(reader: KeyReader, file: KeyFile) -> Iterator[pa.RecordBatch]:
    schema = _schema(reader.columns)
    for batch in reader.read(file, required=True):
        scope = pa.repeat(pa.scalar(file.scope, pa.int32()), len(batch))
        seq = pa.repeat(pa.scalar(file.sequence_number, pa.int64()), len(batch))
        yield pa.RecordBatch.from_arrays([scope, *batch.columns, seq], schema=schema)
