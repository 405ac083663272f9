"""Whatever a fleet is made of is lost, again and again, at any time, while it works on a larger table."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Final

from producer import Job
from producer.broker.queue import Messenger
from producer.model.job import Operation
from tests.chaos.arena import Arena
from tests.chaos.game import Game, in_both
from tests.chaos.trial import Trial
from tests.chaos.victims import WORKERS
from tests.fleet.processes import descendants

_UNITS: Final = 16
_BLOWS: Final = 12
#: Seconds from one blow to the next; a session takes about as long to start.
_PAUSE: Final = (0.2, 5.0)


def games() -> list[Game]:
    """Both kinds of work."""
    return in_both({"anything at any time": _play})


def _play(operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=_UNITS)
    job = trial.start()
    blows: tuple[Callable[[Arena, Job, Random], None], ...] = (
        child_dies,
        machine_dies,
        redis_forgets,
        redis_dies,
        _repeat,
    )
    for _ in range(_BLOWS):
        until = time.monotonic() + random.uniform(*_PAUSE)
        while time.monotonic() < until and not job.status.ended:
            time.sleep(0.1)
        if job.status.ended:
            break
        random.choice(blows)(arena, job, random)
        arena.revive()
    trial.judged(arena.end_of(job))  # a unit that was hit too often has failed
    trial.done_after_all()


def child_dies(arena: Arena, job: Job, random: Random) -> None:
    """The process of a worker that does the work."""
    process = arena.processes.running[random.choice(WORKERS)]
    for child in descendants(process.pid):
        if child.ppid() == process.pid:
            child.kill()
            arena.counts["any time: a worker's child is killed"] += 1
            return


def machine_dies(arena: Arena, job: Job, random: Random) -> None:
    """A machine with all that runs there."""
    name = random.choice((*WORKERS, "committer", "beat"))
    arena.processes.kill(name)
    arena.counts["any time: a machine is lost"] += 1


def redis_forgets(arena: Arena, job: Job, random: Random) -> None:
    """Redis loses everything."""
    arena.redis.flushall()
    arena.counts["any time: Redis forgets"] += 1


def redis_dies(arena: Arena, job: Job, random: Random) -> None:
    """Redis dies and comes back with its file."""
    arena.processes.kill("redis")
    arena.counts["any time: Redis is killed"] += 1


def _repeat(arena: Arena, job: Job, random: Random) -> None:
    """Every message that may be on its way is sent once more."""
    store = arena.store(job.id)
    if (plan := store.latest_plan()) is not None:
        Messenger(arena.settings).stage(plan, store.at(plan).pending(plan.units))
        Messenger(arena.settings).commit(job.id, plan.location)
        arena.counts["any time: messages come again"] += 1
