"""A machine of little memory, and a unit that does not fit into it: the kernel kills what takes too much."""

from __future__ import annotations

from random import Random
from typing import Final

import numpy as np
import pyarrow as pa

from producer.model.job import Operation, Status
from tests.chaos import memorygroup
from tests.chaos.arena import Arena
from tests.chaos.game import Game, in_both
from tests.chaos.invariants import Violated
from tests.chaos.trial import Trial
from tests.chaos.victims import WORKERS
from tests.fleet.tables import rows_of

#: Bytes of memory of each worker's machine.
MEMORY: Final = 900 << 20
#: Rows of one row group, each of which takes bytes when it is read; on disk they are next to nothing.
_ROWS: Final = 24
_BYTES: Final = 24 << 20


def games() -> list[Game]:
    """Both kinds of work; none where this process may not say how much memory others get."""
    return in_both({"memory runs out": _play}) if memorygroup.allowed() else []


def _play(operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=3)
    trial.table.append(_large())
    trial.table.delete_where_equal(pa.table({"part": pa.array([1], pa.int32()), "note": ["y" * _BYTES]}), ["note"])
    trial = Trial(arena, trial.table, rows_of(trial.table.table), operation)
    with arena.of_memory(WORKERS, MEMORY) as killed:
        report = arena.end_of(trial.start())
        arena.counts["memory runs out"] += killed()
    trial.judged(report)
    if report.status is Status.COMMITTED:
        return  # it was spilled
    reasons = [failure.reason for failure in report.failures]
    if report.status is not Status.PARTIAL or len(reasons) != 1 or "memory" not in reasons[0]:
        raise Violated(f"one unit of three was to fail, with advice: {report}")
    trial.done_after_all()


def _large() -> pa.Table:
    """Rows of partition 1 that are alike, so that a file of them is small."""
    notes = pa.DictionaryArray.from_arrays(np.zeros(_ROWS, dtype=np.int32), pa.array(["x" * _BYTES]))
    ids = np.arange(_ROWS) + (1 << 41)
    return pa.table({"id": ids, "part": np.ones(_ROWS, dtype=np.int32), "note": notes.cast(pa.string())})
