"""Positions that were deleted before: what a unit's position delete files already say of its targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession

from workers.failures import told
from workers.position_deletes import read_position_deletes
from workers.unit import PositionFile, Target

_SCHEMA = pa.schema([("file", pa.int32()), ("pos", pa.int64()), ("scope", pa.int32())])


def deleted_before(
    session: SparkSession,
    files: Sequence[PositionFile],
    targets: Sequence[Target],
    io: FileIO,
    scratch: Path,
    cores: int,
) -> DataFrame:
    """Rows that position delete files remove from targets, as ``file, pos, scope``; may repeat.

    A file applies to targets of its scope that are not newer, and to none that has a vector (spec, Scan Planning).
    """
    shares = [files[index::cores] for index in range(min(cores, len(files)))]
    by_scope: dict[int, list[Target]] = {}
    for target in targets:
        if target.vector is None:
            by_scope.setdefault(target.scope, []).append(target)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            for batch in batches:
                for index in batch.column(0).to_pylist():
                    for file in shares[index]:
                        yield from _rows(io, file, by_scope.get(file.scope, []))

    ids = session.range(0, len(shares), 1, len(shares))
    return ids.mapInArrow(read, "file int, pos bigint, scope int")


def named_files(io: FileIO, file: PositionFile) -> tuple[str, ...]:
    """Every data file path that a position delete file names."""
    paths = [batch.column("file_path").unique() for batch in read_position_deletes(io, file.path)]
    return tuple(sorted(set(pa.chunked_array(paths, pa.string()).unique().to_pylist()))) if paths else ()


def _rows(io: FileIO, file: PositionFile, targets: Sequence[Target]) -> Iterator[pa.RecordBatch]:
    reached = [target for target in targets if target.sequence_number <= file.sequence_number]
    if not reached:
        return
    paths = pa.array([target.path for target in reached], pa.string())
    indexes = pa.array([target.index for target in reached], pa.int32())
    for batch in read_position_deletes(io, file.path):
        found = pc.index_in(batch.column("file_path"), value_set=paths)
        mask = pc.is_valid(found)
        index = indexes.take(found.filter(mask))
        if len(index):
            scope = pa.array(np.full(len(index), file.scope, dtype=np.int32))
            yield pa.RecordBatch.from_arrays([index, batch.column("pos").filter(mask), scope], schema=_SCHEMA)
