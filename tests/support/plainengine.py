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
from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes
from workers.model.units import ConversionResult, ConversionUnit

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
    deletes, version_3 = unit.deletes, unit.format_version >= 3
    found = matched(deletes, io)
    paths = {file.path: named(io, file.path) for file in deletes.positions}
    before = {file.index: deleted_before(deletes, file, paths, io) for file in deletes.data_files}
    fresh = {index: positions - before[index] for index, positions in sorted(found.items())}
    changed = [file for file in deletes.data_files if fresh.get(file.index)]
    if progress is not None:
        progress(len(deletes.data_files), len(deletes.data_files))
    return ConversionResult(
        deletes=() if version_3 else tuple(_deletes(unit, io, changed, fresh)),
        vectors=_vectors(unit, io, changed, fresh, before) if version_3 else (),
        named=named_by(deletes, paths) if version_3 else {},
        rows_read=sum(
            file.record_count for some in deletes.equality for file in deletes.data_files if _reach(some, file)
        ),
        new_positions=sum(len(positions) for positions in fresh.values()),
    )


def matched(deletes: DeleteSet, io: FileIO) -> dict[int, set[int]]:
    """The rows that equality deletes remove, by the index of their data file."""
    found: dict[int, set[int]] = defaultdict(set)
    for some in deletes.equality:
        newest: dict[tuple[int | None, Key], int] = {}
        for delete in some.files:
            for key in _keys(some, delete, io):
                place = None if some.is_global else delete.scope, key
                newest[place] = max(newest.get(place, 0), delete.sequence_number)
        for file in (file for file in deletes.data_files if _reach(some, file)):
            for position, key in enumerate(_keys(some, file, io)):
                if file.sequence_number < newest.get((None if some.is_global else file.scope, key), 0):
                    found[file.index].add(position)
    return found


def _reach(some: EqualityDeletes, data_file: ContentFile) -> bool:
    """Whether one of the delete files applies to a data file."""
    return any(
        data_file.sequence_number < file.sequence_number and (some.is_global or file.scope == data_file.scope)
        for file in some.files
    )


def _keys(some: EqualityDeletes, file: ContentFile, io: FileIO) -> list[Key]:
    with io.new_input(file.path).open() as stream:
        rows = pq.read_table(stream)
    ids = {(field.metadata or {}).get(b"PARQUET:field_id"): index for index, field in enumerate(rows.schema)}
    columns = []
    for column in some.columns:
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


def named_by(deletes: DeleteSet, paths: dict[str, dict[str, set[int]]]) -> dict[str, tuple[str, ...]]:
    """The data files that each position delete file of several names."""
    return {file.path: tuple(sorted(paths[file.path])) for file in deletes.positions if file.referenced is None}


def deleted_before(
    deletes: DeleteSet, data_file: ContentFile, paths: dict[str, dict[str, set[int]]], io: FileIO
) -> set[int]:
    """The positions of a data file that a vector or position deletes had."""
    if data_file.vector is not None:
        return set(read_vector(io, data_file.vector, data_file.path).positions().tolist())
    return {
        position
        for file in deletes.positions
        if file.scope == data_file.scope and file.sequence_number >= data_file.sequence_number
        for position in paths[file.path].get(data_file.path, ())
    }


def _deletes(
    unit: ConversionUnit, io: FileIO, changed: Iterable[ContentFile], fresh: dict[int, set[int]]
) -> Iterable[StagedDeleteFile]:
    files: dict[str, list[ContentFile]] = defaultdict(list)
    for target in changed:
        files[unit.destinations[target.index]].append(target)
    for path, targets in files.items():
        with ParquetPositionDeleteWriter(io, path, unit.properties) as writer:
            for target in targets:
                writer.write(target.path, np.array(sorted(fresh[target.index]), dtype=np.int64))
            yield writer.close(targets[0].scope)


def _vectors(
    unit: ConversionUnit,
    io: FileIO,
    changed: Iterable[ContentFile],
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
