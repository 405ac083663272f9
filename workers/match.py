"""The match: a join of data rows with deletes that has the sequence number as its second condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.batches import gathered
from workers.deletes import Spool, key_names, read_part, spark_schema, spool
from workers.failures import told
from workers.keys import KeyReader
from workers.machine import Budget
from workers.scan import Scan, pieces
from workers.unit import Match


def matched(
    session: SparkSession,
    match: Match,
    io: FileIO,
    mapping: NameMapping | None,
    budget: Budget,
    scratch: Path,
    name: str,
    stopped: Callable[[], bool],
) -> DataFrame | None:
    """Rows that the match's deletes remove, as ``file, pos, scope``; None where there are no deletes.

    A semi join gives each data row at most once, so keys that repeat among the deletes do no harm. What fits into the
    budget is broadcast, anything larger is shuffled, sorted and spilled.
    """
    reader = KeyReader(io, match.columns, mapping, budget.batch_bytes)
    deletes = spool(match, reader, scratch / name, budget, stopped)
    if not deletes.rows:
        return None
    if deletes.bytes <= budget.broadcast_bytes and deletes.broadcast_bytes <= budget.broadcast_bytes:
        frame = session.createDataFrame(_table(match, deletes)).hint("broadcast")
    else:
        small = deletes.broadcast_bytes <= budget.broadcast_bytes
        frame = _frame(session, match, deletes, scratch, budget.cores).hint("broadcast" if small else "merge")
    data = Scan(reader, match.is_global, deletes.filter, deletes.bounds, scratch)
    left, right = data.frame(session, pieces(match), budget.cores).alias("d"), frame.alias("e")
    keys = [f.col(f"d.{key}").eqNullSafe(f.col(f"e.{key}")) for key in key_names(match.columns)]
    conditions: list[Column] = [*keys, f.col("d.seq") < f.col("e.seq")]
    if not match.is_global:
        conditions.append(f.col("d.scope") == f.col("e.scope"))
    return left.join(right, reduce(Column.__and__, conditions), "left_semi").select("file", "pos", "scope")


def _table(match: Match, deletes: Spool) -> pa.Table:
    """The deletes in memory; keys that come again and again once, with their highest sequence number."""
    parts = [batch for part in deletes.parts for batch in read_part(part)]
    table = pa.Table.from_batches(parts).select(_columns(match))
    if deletes.repeats:
        grouped = table.group_by(_group(match)).aggregate([("seq", "max")])
        table = grouped.rename_columns({"seq_max": "seq"}).select(_columns(match))
    return table.combine_chunks()


def _frame(session: SparkSession, match: Match, deletes: Spool, scratch: Path, cores: int) -> DataFrame:
    """The same, too large to pass through this process."""
    parts = deletes.parts
    shares = [parts[index::cores] for index in range(min(cores, len(parts)))]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    yield from gathered(rows for part in shares[index] for rows in read_part(part))

    ids = session.range(0, len(shares), 1, len(shares))
    frame = ids.mapInArrow(read, spark_schema(match.columns)).select(*_columns(match))
    return frame.groupBy(*_group(match)).agg(f.max("seq").alias("seq")) if deletes.repeats else frame


def _group(match: Match) -> list[str]:
    """What keys are the same by: those of a scoped delete only within their scope."""
    return key_names(match.columns) if match.is_global else ["scope", *key_names(match.columns)]


def _columns(match: Match) -> list[str]:
    return ["seq", *_group(match)]
