"""Which rows the deletes of a unit remove: what equality deletes match, and what was deleted by position before."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from producer.model.plan import PositionDeleteFile
from workers.deletes.join import Matcher
from workers.deletes.position_runs import Gone, PositionRuns, PositionRunWriter, tasks_for
from workers.deletes.scan import pieces
from workers.formats.format_model import Positions
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import read_vector
from workers.model.convert_unit import ConversionUnit, Target
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks

_THREADS: Final = 8
_NAMED: Final = "named-{}.json"
#: Position delete files that are worth a task of their own.
_TASK_FILES: Final = 16


class Deletes:
    """The deletes of one unit, resolved to positions in its data files.

    Args:
        unit: The deletes, and the data files as targets.
        noted: Whether to keep which data files partition-scoped position delete files name.
    """

    def __init__(self, unit: ConversionUnit, context: UnitContext, *, noted: bool) -> None:
        self._unit = unit
        self._context = context
        self._earlier = EarlierDeletes(unit, context, noted=noted)

    def resolved(self) -> Gone:
        """The rows that equality deletes remove, and those that position delete files remove already; not vectors'."""
        matcher = Matcher(self._context, self._unit.name_mapping)
        read = [match for match in self._unit.matches if pieces(match)]
        fresh = [runs for number, match in enumerate(read) for runs in matcher.removed(match, f"deletes-{number}")]
        return Gone(fresh, self._earlier.removed())

    def named(self) -> dict[str, tuple[str, ...]]:
        """For each file of several data files, all paths that it names; there once they are resolved."""
        return self._earlier.named()

    def spool(self) -> None:
        """Leave in scratch, for each data file that loses rows, the positions of all of them, its vector's among them.

        :func:`deleted_positions` reads them. Memory is bounded by the positions of one data file for each thread.
        """
        deleted, scratch = self.resolved(), self._context.scratch
        counts = deleted.counts()
        files = list(counts)
        tasks = tasks_for(list(counts.values()), self._context.budget.cores)

        def write(task: int) -> Iterator[int]:
            for file in (files[index] for index in tasks[task]):
                with open(_file(scratch, file), "wb") as spool:
                    for run in deleted.read(file):
                        spool.write(run.positions.tobytes())
            yield from ()

        run_tasks(self._context, len(tasks), write)
        with_vector = [target for target in self._unit.targets if target.vector is not None]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._add_vector, with_vector))

    def _add_vector(self, target: Target) -> None:
        assert target.vector is not None
        positions = read_vector(self._context.io, target.vector, target.path).positions()
        others = deleted_positions(self._context.scratch, target.index)
        every = positions if others is None else np.union1d(positions, others)
        _file(self._context.scratch, target.index).write_bytes(every.tobytes())


def deleted_positions(scratch: Path, file: int) -> Positions | None:
    """Positions of the rows of a data file that are deleted, ascending and distinct; None where there are none."""
    path = _file(scratch, file)
    if not path.exists() or not path.stat().st_size:
        return None
    return np.memmap(path, dtype=np.int64, mode="r")


def _file(scratch: Path, file: int) -> Path:
    return scratch / f"gone-{file}"


class EarlierDeletes:
    """A unit's position delete files, each read once.

    A file applies to targets of its scope that are not newer, and to none that has a vector (spec, Scan Planning). The
    data files that a file names are ``noted`` while it is read, where it may leave once none of them needs it.
    """

    def __init__(self, unit: ConversionUnit, context: UnitContext, *, noted: bool) -> None:
        self._context = context
        self._files = unit.positions
        self._noted = noted
        self._targets: dict[int, list[Target]] = defaultdict(list)
        for target in unit.targets:
            if target.vector is None:
                self._targets[target.scope].append(target)

    def removed(self) -> list[PositionRuns]:
        """Rows that they remove from targets, in files of scratch."""
        io, scratch, targets = self._context.io, self._context.scratch, dict(self._targets)
        files = [(number, file) for number, file in enumerate(self._files) if self._is_read(file)]
        tasks = min(self._context.budget.cores, -(-len(files) // _TASK_FILES))

        def work(task: int) -> Iterator[PositionRuns]:
            with PositionRunWriter(scratch / f"earlier-{task}.positions") as writer:
                for number, file in files[task::tasks]:
                    _read(io, file, targets.get(file.scope, []), scratch / _NAMED.format(number), writer)
                yield writer.close()

        return run_tasks(self._context, tasks, work)

    def _is_read(self, file: PositionDeleteFile) -> bool:
        if self._noted and file.referenced is None:
            return True
        return any(_reaches(file, target) for target in self._targets.get(file.scope, []))

    def named(self) -> dict[str, tuple[str, ...]]:
        """For each file of several data files, all paths that it names; there once :meth:`removed` has run."""
        found: dict[str, tuple[str, ...]] = {}
        paths: dict[str, str] = {}
        for number, file in enumerate(self._files if self._noted else ()):
            if file.referenced is None:
                named = json.loads((self._context.scratch / _NAMED.format(number)).read_text())
                found[file.path] = tuple(paths.setdefault(path, path) for path in named)
        return found


def _reaches(file: PositionDeleteFile, target: Target) -> bool:
    return target.sequence_number <= file.sequence_number and file.referenced in (None, target.path)


def _read(
    io: FileIO, file: PositionDeleteFile, targets: Sequence[Target], note: Path, writer: PositionRunWriter
) -> None:
    reached = [target for target in targets if _reaches(file, target)]
    paths = pa.array([target.path for target in reached], pa.string())
    indexes = pa.array([target.index for target in reached], pa.int32())
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
    note.write_text(json.dumps(sorted(named)))
