"""Which rows the deletes of a unit remove: what equality deletes match, and what was deleted by position before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from threading import Event
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from workers.failures import told
from workers.machine import Budget
from workers.match import matched
from workers.output import runs
from workers.positions import EarlierDeletes
from workers.puffin import read_vector
from workers.rows import Positions
from workers.scan import pieces
from workers.unit import ConversionUnit, Target

_DONE: Final = "file int"
_THREADS: Final = 8


class Deletes:
    """The deletes of one unit, resolved to positions in its data files.

    Args:
        unit: The deletes, and the data files as targets.
        noted: Whether to keep which data files partition-scoped position delete files name.
    """

    def __init__(self, unit: ConversionUnit, io: FileIO, budget: Budget, scratch: Path, *, noted: bool) -> None:
        self._unit = unit
        self._io = io
        self._budget = budget
        self._scratch = scratch
        self._earlier = EarlierDeletes(unit, io, scratch, noted=noted)

    def fresh(self, session: SparkSession, stop: Event) -> DataFrame | None:
        """Rows that equality deletes remove, as ``file, pos, scope``; may repeat. None where there are none."""
        read = [match for match in self._unit.matches if pieces(match)]
        mapping, budget, scratch = self._unit.name_mapping, self._budget, self._scratch
        found = [
            matched(session, match, self._io, mapping, budget, scratch, f"deletes-{number}", stop.is_set)
            for number, match in enumerate(read)
        ]
        frames = [frame for frame in found if frame is not None]
        return reduce(DataFrame.unionByName, frames) if frames else None

    def before(self, session: SparkSession) -> DataFrame | None:
        """Rows that position delete files remove already, as ``file, pos, scope``; may repeat."""
        return self._earlier.frame(session, self._budget.cores)

    def named(self) -> dict[str, tuple[str, ...]]:
        """For each file of several data files, all paths that it names; there once :meth:`before` was computed."""
        return self._earlier.named()

    def spool(self, session: SparkSession, stop: Event) -> None:
        """Leave in scratch, for each data file that loses rows, the positions of all of them; :func:`gone` reads it.

        Vectors are part of them. Memory is bounded by the positions of one data file for each thread.
        """
        frames = [frame for frame in (self.fresh(session, stop), self.before(session)) if frame is not None]
        if frames:
            together = reduce(DataFrame.unionByName, frames).withColumn("fresh", f.lit(True))
            ordered = together.repartition("file").sortWithinPartitions("file", "pos").select("file", "pos", "fresh")
            ordered.mapInArrow(_spooler(self._scratch), _DONE).collect()
        with_vector = [target for target in self._unit.targets if target.vector is not None]
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._add_vector, with_vector))

    def _add_vector(self, target: Target) -> None:
        assert target.vector is not None
        positions = read_vector(self._io, target.vector, target.path).positions()
        others = gone(self._scratch, target.index)
        every = positions if others is None else np.union1d(positions, others)
        _file(self._scratch, target.index).write_bytes(every.tobytes())


def gone(scratch: Path, file: int) -> Positions | None:
    """Positions of the rows of a data file that are deleted, ascending and distinct; None where there are none."""
    path = _file(scratch, file)
    if not path.exists() or not path.stat().st_size:
        return None
    return np.memmap(path, dtype=np.int64, mode="r")


def _spooler(scratch: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with told(scratch):
            for run in runs(batches):
                with open(_file(scratch, run.target), "ab") as spool:
                    spool.write(run.positions.astype(np.int64).tobytes())
        yield from ()

    return write


def _file(scratch: Path, file: int) -> Path:
    return scratch / f"gone-{file}"
