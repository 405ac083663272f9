"""Positions that were deleted before: what a unit's position delete files already say of its targets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession

from workers.batches import gathered
from workers.failures import told
from workers.position_deletes import read_position_deletes
from workers.unit import ConversionUnit, PositionFile, Target

_SCHEMA = pa.schema([("file", pa.int32()), ("pos", pa.int64()), ("scope", pa.int32())])
_NAMED = "named-{}.json"


class EarlierDeletes:
    """A unit's position delete files, each read once.

    A file applies to targets of its scope that are not newer, and to none that has a vector (spec, Scan Planning). The
    data files that a file names are ``noted`` while it is read, where it may leave once none of them needs it.
    """

    def __init__(self, unit: ConversionUnit, io: FileIO, scratch: Path, *, noted: bool) -> None:
        self._io = io
        self._scratch = scratch
        self._files = unit.positions
        self._noted = noted
        self._targets: dict[int, list[Target]] = defaultdict(list)
        for target in unit.targets:
            if target.vector is None:
                self._targets[target.scope].append(target)

    def frame(self, session: SparkSession, cores: int) -> DataFrame | None:
        """Rows that they remove from targets, as ``file, pos, scope``; may repeat. None where none is read."""
        io, scratch, targets = self._io, self._scratch, dict(self._targets)
        files = [(number, file) for number, file in enumerate(self._files) if self._is_read(file)]
        shares = [files[index::cores] for index in range(min(cores, len(files)))]
        if not shares:
            return None

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with told(scratch):
                work = (share for batch in batches for index in batch.column(0).to_pylist() for share in shares[index])
                yield from gathered(
                    rows
                    for number, file in work
                    for rows in _rows(io, file, targets.get(file.scope, []), scratch / _NAMED.format(number))
                )

        ids = session.range(0, len(shares), 1, len(shares))
        return ids.mapInArrow(read, "file int, pos bigint, scope int")

    def _is_read(self, file: PositionFile) -> bool:
        if self._noted and file.referenced is None:
            return True
        return any(_reaches(file, target) for target in self._targets.get(file.scope, []))

    def named(self) -> dict[str, tuple[str, ...]]:
        """For each file of several data files, all paths that it names; there once :meth:`frame` has been computed."""
        found: dict[str, tuple[str, ...]] = {}
        paths: dict[str, str] = {}
        for number, file in enumerate(self._files if self._noted else ()):
            if file.referenced is None:
                named = json.loads((self._scratch / _NAMED.format(number)).read_text())
                found[file.path] = tuple(paths.setdefault(path, path) for path in named)
        return found


def _reaches(file: PositionFile, target: Target) -> bool:
    return target.sequence_number <= file.sequence_number and file.referenced in (None, target.path)


def _rows(io: FileIO, file: PositionFile, targets: Sequence[Target], note: Path) -> Iterator[pa.RecordBatch]:
    reached = [target for target in targets if _reaches(file, target)]
    paths = pa.array([target.path for target in reached], pa.string())
    indexes = pa.array([target.index for target in reached], pa.int32())
    named: set[str] = set()
    for batch in read_position_deletes(io, file.path):
        # A path is compared once, not once for each of its rows.
        coded = batch.column("file_path").dictionary_encode()
        named.update(coded.dictionary.to_pylist())
        index = indexes.take(pc.index_in(coded.dictionary, value_set=paths)).take(coded.indices)
        scope = pa.repeat(pa.scalar(file.scope, pa.int32()), len(batch))
        rows = pa.RecordBatch.from_arrays([index, batch.column("pos"), scope], schema=_SCHEMA)
        yield rows.filter(pc.is_valid(index)) if index.null_count else rows
    note.write_text(json.dumps(sorted(named)))
