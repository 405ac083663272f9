"""Rows through Spark: routed into partitions, sorted, spilled where they are many, dealt to tasks by ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.machine import Budget
from workers.partitioning import Partitioning
from workers.pieces import Batches, P, read_by_tasks
from workers.ranges import Direction, Ranges
from workers.rewriting import Arrangement, Input, Partition, RewriteUnit
from workers.rowkeys import RowKeys
from workers.sample import place_of, sampled
from workers.storage import StorageSchema, spark_ddl
from workers.zorder import Curve

_ASCENDING: Final = Direction()
_RANGE: Final = "range"
_PART: Final = "part"
_PLACE: Final = "place"


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of arranged rows mean: ``part``, the text of the output partition, then the stored rows."""

    partitioning: Partitioning
    storage: StorageSchema

    def runs(self, batches: Batches) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Rows as they were, with the partition that they belong to; those of one partition follow one another."""
        known: dict[str, Partition] = {}
        for batch in batches:
            parts, rows = batch.column(0), self.storage.restored(batch.select(range(1, batch.num_columns)))
            changes = np.flatnonzero(pc.not_equal(parts[1:], parts[:-1]).to_numpy(zero_copy_only=False)) + 1
            bounds = [0, *changes.tolist(), batch.num_rows]
            for start, end in pairwise(bounds):
                if end > start:
                    text = parts[start].as_py()
                    if text not in known:
                        known[text] = self.partitioning.partition(text)
                    yield known[text], rows.slice(start, end - start)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Rows in order. Each of Spark's partitions is a range of it, ascending; rows are sorted within."""

    frame: DataFrame
    layout: Layout


def arranged(
    session: SparkSession,
    unit: RewriteUnit,
    rows: tuple[pa.Schema, Callable[[P], Batches]],
    keys: tuple[pa.Schema, Callable[[P], Batches]],
    pieces: Sequence[P],
    tasks: int,
    budget: Budget,
    scratch: Path,
) -> Arranged:
    """Sort a unit's rows by output partition, and within each as the unit's arrangement says; else as they come.

    Rows that compare equal stay in the order of the pieces. Key columns are read once more before, for a sample;
    nothing is held but that. What does not fit the heap is spilled.

    Args:
        session: The session of this budget.
        unit: What is arranged and how.
        rows: The Arrow schema of rows, with field ids, and what reads the live ones of a piece.
        keys: The same of the columns of :func:`workers.rowkeys.key_fields` alone.
        pieces: All of the inputs, in the order that rows keep where nothing else is asked for.
        tasks: Into how many ranges rows are dealt, at most; fewer where there are few distinct rows.
        budget: Memory and cores.
        scratch: Where errors are told.

    Raises:
        ValueError: a column cannot be sorted by, interleaved, or routed by.
    """
    schema, read = rows
    sample_schema, read_keys = keys
    by, sampled_by = RowKeys.of(unit, schema), RowKeys.of(unit, sample_schema)
    zorder = unit.arrangement is Arrangement.ZORDER
    if tasks > 1 or zorder:
        sample = sampled(session, sampled_by, sample_schema, pieces, read_keys, budget.cores, scratch)
        curve = Curve.of(sample.columns) if zorder else None
        columns = sample.columns if curve is None else [curve.of_rows(sample.columns)]
        ranges = Ranges.of([sample.parts, *columns, sample.places], _directions(by), tasks)
    else:
        curve, ranges = None, None
    arranger = Arranger(by, StorageSchema.of(schema), curve, ranges)
    frame = read_by_tasks(
        session, pieces, budget.cores, scratch, arranger.reading(read), spark_ddl(arranger.schema)
    ).repartitionById(1 if ranges is None else len(ranges), _RANGE)
    ordered = frame.sortWithinPartitions(*arranger.order).select(_PART, *arranger.storage.names)
    return Arranged(ordered, Layout(by.partitioning, arranger.storage))


@dataclass(frozen=True)
class Arranger:
    """In Spark's tasks: gives each row its range and its keys."""

    keys: RowKeys
    storage: StorageSchema
    #: Of a z-order.
    curve: Curve | None
    #: None where there is one only.
    ranges: Ranges | None

    @property
    def schema(self) -> pa.Schema:
        """What :meth:`reading` gives: range, partition, keys, place, and the stored row."""
        keys = zip(self._names, self._types, strict=True)
        fields = [(_RANGE, pa.int32()), (_PART, pa.string()), *keys, (_PLACE, pa.int64())]
        return pa.schema([*(pa.field(*field) for field in fields), *self.storage.stored_rows])

    @property
    def order(self) -> list[Column]:
        """What Spark sorts by."""
        names = iter(self._names)
        columns = [
            self.storage.names[own] if own is not None else next(names)
            for own in ([None] if self.curve else self._stored)
        ]
        return [
            f.col(_PART),
            *(_sorted(f.col(n), direction) for n, direction in zip(columns, _inner(self.keys), strict=True)),
            f.col(_PLACE),
        ]

    def reading(self, read: Callable[[P], Batches]) -> Callable[[int, P], Batches]:
        """What gives the rows of a piece, by the number of the piece."""
        schema = self.schema

        def rows(number: int, piece: P) -> Batches:
            start = 0
            for batch in read(piece):
                yield self._arranged(piece.file, batch, place_of(number, start), schema)
                start += batch.num_rows

        return rows

    def _arranged(self, file: Input, batch: pa.RecordBatch, place: int, schema: pa.Schema) -> pa.RecordBatch:
        parts = self.keys.parts(file, batch)
        columns = self.keys.columns(batch)
        if self.curve is not None:
            columns = [self.curve.of_rows(columns)]
        places = pa.array(np.arange(place, place + batch.num_rows))
        if self.ranges is None:
            ranges = pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
        else:
            ranges = pa.array(self.ranges.of_rows([parts, *columns, places]))
        keys = columns if self.curve else [c for c, own in zip(columns, self._stored, strict=True) if own is None]
        stored = self.storage.stored(batch).columns
        return pa.RecordBatch.from_arrays([ranges, parts, *keys, places, *stored], schema=schema)

    @property
    def _stored(self) -> list[int | None]:
        """For each column of the order, the row's column whose stored form is sorted in its stead."""
        return [key.stored_as for key in self.keys.order]

    @property
    def _names(self) -> list[str]:
        return [f"k{index}" for index in range(len(self._types))]

    @cached_property
    def _types(self) -> list[pa.DataType]:
        if self.curve is not None:
            return [pa.int64()]
        empty = pa.RecordBatch.from_pylist([], schema=self.storage.rows)
        return [column.type for column, own in zip(self.keys.columns(empty), self._stored, strict=True) if own is None]


def _inner(keys: RowKeys) -> list[Direction]:
    return keys.directions or ([_ASCENDING] if keys.axes else [])


def _directions(keys: RowKeys) -> list[Direction]:
    """Of the partition, the keys and the place."""
    return [_ASCENDING, *_inner(keys), _ASCENDING]


def _sorted(column: Column, direction: Direction) -> Column:
    if direction.descending:
        return column.desc_nulls_first() if direction.nulls_first else column.desc_nulls_last()
    return column.asc_nulls_first() if direction.nulls_first else column.asc_nulls_last()
