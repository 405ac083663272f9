"""Storage and a catalog that fail: some faults during a job, in any order and number."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from producer.model.job import Operation
from tests.chaos.arena import Arena
from tests.chaos.faults import Effect, Fault, Step
from tests.chaos.game import Game, in_both
from tests.chaos.trial import Trial

_READ: Final = (Effect.IO_ERROR, Effect.DENIED, Effect.VANISHED, Effect.SLOW)
_WRITTEN: Final = (Effect.IO_ERROR, Effect.DISK_FULL, Effect.DENIED, Effect.TRUNCATED)
#: What may happen when, and how often the moment comes in a job of two units, about.
STORAGE: Final[dict[Step, tuple[tuple[Effect, ...], int]]] = {
    Step.FILE_READ: (_READ, 12),
    Step.RECORD_READ: (_READ[:2] + _READ[3:], 80),
    Step.MANIFEST_READ: (_READ, 40),
    Step.RECORD_WRITTEN: (_WRITTEN, 16),
    Step.FILE_HALF_WRITTEN: (_WRITTEN, 2),
    Step.FILE_WRITTEN: ((Effect.IO_ERROR,), 2),
    Step.RECORD_STAGED: ((Effect.IO_ERROR,), 2),
    Step.MANIFESTS_WRITTEN: ((Effect.IO_ERROR, Effect.DISK_FULL), 1),
    Step.DELETED: ((Effect.IO_ERROR, Effect.DENIED), 30),
}
CATALOG: Final[dict[Step, tuple[tuple[Effect, ...], int]]] = {
    Step.TABLE_LOADED: ((Effect.REFUSED, Effect.HESITANT, Effect.SLOW), 25),
    Step.BEFORE_SWAP: ((Effect.REFUSED, Effect.NO_ANSWER_BEFORE, Effect.BEATEN, Effect.HESITANT, Effect.SLOW), 2),
    Step.AFTER_SWAP: ((Effect.NO_ANSWER_AFTER, Effect.SLOW), 1),
}
_FAULTS: Final = (8, 20)


def games() -> list[Game]:
    """Storage alone, the catalog alone, and both."""
    kinds = {"storage fails": STORAGE, "catalog fails": CATALOG, "storage and catalog fail": STORAGE | CATALOG}
    return in_both({name: partial(_play, what) for name, what in kinds.items()})


def _play(what: dict[Step, tuple[tuple[Effect, ...], int]], operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)))
    for _ in range(random.randint(*_FAULTS)):
        step = random.choice(list(what))
        effects, often = what[step]
        # Early moments more often: what has gone wrong before makes those after it come again.
        arena.arsenal.arm(Fault(step, random.choice(effects), int(often * random.random() ** 2)))
    report = arena.end_of(trial.start())
    arena.arsenal.disarm()
    trial.judged(report)
    trial.done_after_all()
