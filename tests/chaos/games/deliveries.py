"""Messages that come twice, late, in any order, or never."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from producer import Job
from producer.messages import Operation
from producer.messenger import QUEUES, SWEEP, Messenger
from tests.chaos.arena import Arena
from tests.chaos.game import Game
from tests.chaos.trial import Trial

#: Of messages that are sent again, and seconds from one time to the next.
_TIMES: Final = 6
_PAUSE: Final = (0.05, 1.0)
_QUEUES: Final = tuple(queue for task, queue in QUEUES.items() if task != SWEEP)


def games() -> list[Game]:
    """Each kind of trouble in both kinds of work."""
    kinds = {"messages come again": _again, "messages are lost": _lost, "messages are given to others": _expired}
    return [
        Game(f"{name}: {operation}", partial(_play, trouble, operation))
        for name, trouble in kinds.items()
        for operation in Operation
    ]


def _play(trouble: Callable[[Arena, Job], None], operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=3)
    job = trial.start()
    for _ in range(_TIMES):
        if job.status.ended:
            break
        trouble(arena, job)
        time.sleep(random.uniform(*_PAUSE))
    trial.judged(arena.end_of(job), committed=True)


def _again(arena: Arena, job: Job) -> None:
    """Whatever may be on its way is sent once more, twice over, so that two workers may have it at once."""
    store, messenger = arena.store(job.id), Messenger(arena.settings)
    if (plan := store.latest_plan()) is None:
        return
    for _ in range(2):
        messenger.stage(plan, range(len(plan.units)))
        messenger.commit(job.id, plan.location)
    arena.told["message sent again"] += 2 * len(plan.units) + 2


def _lost(arena: Arena, job: Job) -> None:
    """Whatever waits in the queues is gone; its time to be sent again comes at once."""
    for queue in _QUEUES:
        while arena.redis.lpop(queue) is not None:
            arena.told["message lost"] += 1
    arena.forget_sending(job.id)


def _expired(arena: Arena, job: Job) -> None:
    """What somebody works on is delivered to somebody else too: the unit takes longer than the visibility timeout."""
    arena.told["delivery expired"] += arena.redis.zcard("unacked_index")
    arena.let_deliveries_expire()
    arena.redeliver()
