"""The conversion of a unit in plain Python, one row at a time: what commits are tested with, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from producer.model.staged import StagedDeleteFile, StagedVector
from workers.formats.deletion_vector import DeletionVector
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import PuffinWriter, read_vector
from workers.model.convert_unit import ConversionResult, ConversionUnit, KeyFile, Match, Target

Key = tuple[Any, ...]


def convert(
    unit: ConversionUnit,
    io: FileIO,
    session: object = None,
    budget: object = None,
    scratch: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ConversionResult:
    """Does what ``workers.operations.convert.convert`` does, for top-level key columns of files with field ids."""
    found: dict[int, set[int]] = defaultdict(set)
    for each in unit.matches:
        match(each, io, found)
    paths = {file.path: named(io, file.path) for file in unit.positions}
    before = {target.index: deleted_before(unit, target, paths, io) for target in unit.targets}
    fresh = {index: positions - before[index] for index, positions in sorted(found.items())}
    changed = [target for target in unit.targets if fresh.get(target.index)]
    version_3 = unit.format_version >= 3
    vectors = _vectors(unit, io, changed, fresh, before) if version_3 else ()
    deletes = () if version_3 else tuple(_deletes(unit, io, changed, fresh))
    if progress is not None:
        progress(len(unit.targets), len(unit.targets))
    return ConversionResult(
        deletes=deletes,
        vectors=vectors,
        named={path: tuple(sorted(positions)) for path, positions in paths.items()},
        rows_read=sum(file.record_count for match in unit.matches for file in match.data),
        new_positions=sum(len(positions) for positions in fresh.values()),
    )


def match(one: Match, io: FileIO, found: dict[int, set[int]]) -> None:
    """Find the rows that one set of equality ids deletes, by the index of their data file."""
    newest: dict[tuple[int | None, Key], int] = {}
    for delete in one.deletes:
        for key in _keys(one, delete, io):
            place = None if one.is_global else delete.scope, key
            newest[place] = max(newest.get(place, 0), delete.sequence_number)
    for file in one.data:
        for position, key in enumerate(_keys(one, file, io)):
            if file.sequence_number < newest.get((None if one.is_global else file.scope, key), 0):
                found[file.index].add(position)


def _keys(match: Match, file: KeyFile, io: FileIO) -> list[Key]:
    with io.new_input(file.path).open() as stream:
        rows = pq.read_table(stream)
    ids = {(field.metadata or {}).get(b"PARQUET:field_id"): index for index, field in enumerate(rows.schema)}
    columns = []
    for column in match.columns:
        index = ids.get(str(column.field_id).encode())
        missing = file.constants.get(column.field_id, column.default)
        columns.append(rows.column(index).to_pylist() if index is not None else [missing] * rows.num_rows)
    return list(zip(*columns, strict=True))


def named(io: FileIO, path: str) -> dict[str, set[int]]:
    """The positions in a position delete file by data file."""
    found: dict[str, set[int]] = defaultdict(set)
    for batch in read_position_deletes(io, path):
        for row in batch.to_pylist():
            found[row["file_path"]].add(row["pos"])
    return found


def deleted_before(unit: ConversionUnit, target: Target, paths: dict[str, dict[str, set[int]]], io: FileIO) -> set[int]:
    """The positions of a data file that a vector or position deletes had."""
    if target.vector is not None:
        return set(read_vector(io, target.vector, target.path).positions().tolist())
    return {
        position
        for file in unit.positions
        if file.scope == target.scope and file.sequence_number >= target.sequence_number
        for position in paths[file.path].get(target.path, ())
    }


def _deletes(
    unit: ConversionUnit, io: FileIO, changed: Iterable[Target], fresh: dict[int, set[int]]
) -> Iterable[StagedDeleteFile]:
    files: dict[str, list[Target]] = defaultdict(list)
    for target in changed:
        wide = unit.granularity == "partition"
        files[unit.scope_destinations[target.scope] if wide else target.destination].append(target)
    for path, targets in files.items():
        with ParquetPositionDeleteWriter(io, path, unit.properties) as writer:
            for target in targets:
                writer.write(target.path, np.array(sorted(fresh[target.index]), dtype=np.int64))
            yield writer.close(targets[0].scope)


def _vectors(
    unit: ConversionUnit,
    io: FileIO,
    changed: Iterable[Target],
    fresh: dict[int, set[int]],
    before: dict[int, set[int]],
) -> tuple[StagedVector, ...]:
    path = unit.puffin_destination.format(task=0)
    blobs = []
    with PuffinWriter(io, path) as writer:
        for target in changed:
            vector = DeletionVector.of(sorted(fresh[target.index] | before[target.index]))
            blobs.append((target, vector.cardinality, *writer.add_vector(target.path, vector)))
        size = writer.close()
    return tuple(
        StagedVector(
            path=path,
            size=size,
            offset=offset,
            content_size=length,
            cardinality=cardinality,
            new_positions=len(fresh[target.index]),
            scope=target.scope,
            target=target.path,
            merged=target.vector,
        )
        for target, cardinality, offset, length in blobs
    )
