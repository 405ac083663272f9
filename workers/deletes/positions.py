"""Positions that were deleted before: what a unit's position delete files already say of its targets."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO

from producer.model.plan import PositionDeleteFile
from workers.deletes.position_runs import PositionRuns, PositionRunWriter
from workers.formats.position_deletes import read_position_deletes
from workers.model.convert_unit import ConversionUnit, Target
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks

_NAMED = "named-{}.json"
#: Files that are worth a task of their own.
_TASK_FILES: Final = 16


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
