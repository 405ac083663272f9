"""The deletes of a set resolved to positions: what equality deletes match, and what was deleted by position before."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from producer.model.plan import PositionDeleteFile
from workers.deletes.matcher import match_deletes
from workers.deletes.position_runs import DeletedPositions, PositionRuns, PositionRunWriter, balance_positions
from workers.formats.format_model import Positions
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import vector_reader
from workers.model.delete_set import ContentFile, DeleteSet
from workers.runtime.bulk_io import opened_soon
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks

_THREADS: Final = 8
_NAMED: Final = "named-{}.json"
#: Position delete files that are worth a task of their own.
_TASK_FILES: Final = 16


@dataclass(frozen=True)
class DeleteResolver:
    """Resolves the deletes of a set to positions in its data files. Each delete file is read once.

    A position delete file applies to data files of its scope that are not newer, and to none that has a vector (spec,
    Scan Planning).
    """

    deletes: DeleteSet
    #: What the unit's work uses; positions lie in its scratch.
    context: UnitContext
    #: Whether to keep which data files each position delete file of several data files names: it may leave the table
    #: once none of them needs it.
    keep_names: bool

    def resolve(self) -> DeletedPositions:
        """Return the rows that equality deletes remove, and those that position delete files have removed already.

        Those of vectors are not among them.
        """
        matched = [
            runs
            for number, equality in enumerate(self.deletes.equality)
            for runs in match_deletes(self.context, self.deletes, equality, f"deletes-{number}")
        ]
        return DeletedPositions(matched, self._read_position_deletes())

    def named(self) -> dict[str, tuple[str, ...]]:
        """Return for each file of several data files all paths that it names; known once the deletes are resolved."""
        found: dict[str, tuple[str, ...]] = {}
        paths: dict[str, str] = {}
        for number, file in enumerate(self.deletes.positions if self.keep_names else ()):
            if file.referenced is None:
                named = json.loads((self.context.scratch / _NAMED.format(number)).read_text())
                found[file.path] = tuple(paths.setdefault(path, path) for path in named)
        return found

    def spool(self) -> None:
        """Leave in scratch, for each data file that loses rows, the positions of all of them, its vector's among them.

        :func:`deleted_positions` reads them. Memory is bounded by the positions of one data file for each thread.
        """
        deleted, scratch = self.resolve(), self.context.scratch
        counts = deleted.counts()
        files = list(counts)
        tasks = balance_positions(list(counts.values()), self.context.budget.cores)

        def write(task: int) -> Iterator[int]:
            for file in (files[index] for index in tasks[task]):
                with open(_spool_path(scratch, file), "wb") as spool:
                    for batch in deleted.read(file):
                        spool.write(batch.positions.tobytes())
            yield from ()

        run_tasks(self.context, len(tasks), write)
        by_vectors: dict[str, list[ContentFile]] = defaultdict(list)
        for data_file in self.deletes.data_files:
            if data_file.vector is not None:
                by_vectors[data_file.vector.path].append(data_file)
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._add_vectors, by_vectors.values()))

    def _add_vectors(self, files: Sequence[ContentFile]) -> None:
        """Add the vectors of data files, which lie in one Puffin file."""
        with vector_reader(self.context.io) as read:
            for file in files:
                assert file.vector is not None
                positions = read(file.vector, file.path).positions()
                others = deleted_positions(self.context.scratch, file.index)
                union = positions if others is None else np.union1d(positions, others)
                _spool_path(self.context.scratch, file.index).write_bytes(union.tobytes())

    def _read_position_deletes(self) -> list[PositionRuns]:
        io, scratch = self.context.io, self.context.scratch
        by_scope: dict[int, list[ContentFile]] = defaultdict(list)
        for data_file in self.deletes.data_files:
            if data_file.vector is None:
                by_scope[data_file.scope].append(data_file)
        files = [
            (number, file)
            for number, file in enumerate(self.deletes.positions)
            if (self.keep_names and file.referenced is None)
            or any(_applies(file, data_file) for data_file in by_scope[file.scope])
        ]
        tasks = min(self.context.budget.cores, -(-len(files) // _TASK_FILES))

        def work(task: int) -> Iterator[PositionRuns]:
            with PositionRunWriter(scratch / f"earlier-{task}.positions") as writer:
                for number, file in opened_soon(io, files[task::tasks], lambda item: item[1].path):
                    names = _read_positions(io, file, by_scope[file.scope], writer)
                    (scratch / _NAMED.format(number)).write_text(json.dumps(sorted(names)))
                yield writer.close()

        return run_tasks(self.context, tasks, work)


def deleted_positions(scratch: Path, file: int) -> Positions | None:
    """Return the positions of a data file's deleted rows, ascending and distinct, or None if there are none."""
    path = _spool_path(scratch, file)
    if not path.exists() or not path.stat().st_size:
        return None
    return np.memmap(path, dtype=np.int64, mode="r")


def _spool_path(scratch: Path, file: int) -> Path:
    return scratch / f"deleted-{file}"


def _applies(file: PositionDeleteFile, data_file: ContentFile) -> bool:
    return data_file.sequence_number <= file.sequence_number and file.referenced in (None, data_file.path)


def _read_positions(
    io: FileIO, file: PositionDeleteFile, data_files: Sequence[ContentFile], writer: PositionRunWriter
) -> set[str]:
    """Write the positions of those data files that the file applies to, and return the paths of all that it names."""
    reached = [data_file for data_file in data_files if _applies(file, data_file)]
    paths = pa.array([data_file.path for data_file in reached], pa.string())
    indexes = pa.array([data_file.index for data_file in reached], pa.int32())
    named: set[str] = set()
    for batch in read_position_deletes(io, file.path):
        # A path is compared once, not once for each of its rows.
        coded = batch.column("file_path").dictionary_encode()
        named.update(coded.dictionary.to_pylist())
        index = indexes.take(pc.index_in(coded.dictionary, value_set=paths)).take(coded.indices)
        rows = pa.RecordBatch.from_arrays([index, batch.column("pos")], names=["file", "pos"])
        if index.null_count:
            rows = rows.filter(pc.is_valid(index))
        writer.add_rows(rows.column(0).to_numpy(), rows.column(1).to_numpy())
    return named
