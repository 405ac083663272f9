"""The match: a join of data rows with deletes that has the sequence number as its second condition."""

from __future__ import annotations

from functools import reduce
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping
from pyspark.sql import Column, DataFrame, SparkSession

from workers.deletes import fits, key_names, read_large, read_small
from workers.keys import KeyReader
from workers.machine import Budget
from workers.scan import scan
from workers.unit import Match


def matched(
    session: SparkSession,
    match: Match,
    io: FileIO,
    mapping: NameMapping | None,
    budget: Budget,
    scratch: Path,
    name: str,
    first: frozenset[int],
) -> DataFrame:
    """Rows that the match's deletes remove, as ``file, pos, scope``; each row once, however often its key is deleted.

    A semi join gives each data row at most once, so keys that repeat among the deletes need not be grouped.
    """
    reader = KeyReader(io, match.columns, mapping, budget.batch_bytes)
    if fits(match, budget.broadcast_bytes):
        deletes = read_small(session, match, reader, scratch, name)
    else:
        deletes = read_large(session, match, reader, scratch, budget.cores * 2)
    data = scan(session, match.data, reader, scratch, budget.cores, deletes.keys, first)
    left, right = data.alias("d"), deletes.frame.alias("e")
    keys = [left[key].eqNullSafe(right[key]) for key in key_names(match.columns)]
    conditions: list[Column] = [*keys, left["seq"] < right["seq"]]
    if not match.is_global:
        conditions.append(left["scope"] == right["scope"])
    return left.join(right, reduce(Column.__and__, conditions), "left_semi").select("file", "pos", "scope")
