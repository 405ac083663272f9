"""Which rows the deletes of a unit remove: what equality deletes match, and what was deleted by position before."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from workers.deletes.join import Matcher
from workers.deletes.position_runs import Gone, tasks_for
from workers.deletes.positions import EarlierDeletes
from workers.deletes.scan import pieces
from workers.formats.format_model import Positions
from workers.formats.puffin import read_vector
from workers.model.convert_unit import ConversionUnit, Target
from workers.runtime.context import UnitContext
from workers.runtime.parallel import run_tasks

_THREADS: Final = 8


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
        """Leave in scratch, for each data file that loses rows, the positions of all of them; :func:`gone` reads it.

        Vectors are part of them. Memory is bounded by the positions of one data file for each thread.
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
        others = gone(self._context.scratch, target.index)
        every = positions if others is None else np.union1d(positions, others)
        _file(self._context.scratch, target.index).write_bytes(every.tobytes())


def gone(scratch: Path, file: int) -> Positions | None:
    """Positions of the rows of a data file that are deleted, ascending and distinct; None where there are none."""
    path = _file(scratch, file)
    if not path.exists() or not path.stat().st_size:
        return None
    return np.memmap(path, dtype=np.int64, mode="r")


def _file(scratch: Path, file: int) -> Path:
    return scratch / f"gone-{file}"
