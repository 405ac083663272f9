"""A Redis that dies, forgets, refuses, hesitates, or cannot be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from producer import Job
from producer.model.job import Operation
from tests.chaos.arena import Arena
from tests.chaos.game import Game, in_both
from tests.chaos.trial import Trial

#: Seconds from a job's start to the trouble: from before its plan to after its commit.
_WHEN: Final = (0.0, 3.0)
_AWAY: Final = (2.0, 5.0, 15.0, 60.0)


def games() -> list[Game]:
    """Each kind of trouble in both kinds of work."""
    kinds = {
        "Redis is killed": _killed,
        "Redis forgets": _flushed,
        "Redis is full": _full,
        "Redis is slow": _slow,
        "Redis cannot be reached": _away,
    }
    return in_both({name: partial(_play, name, trouble) for name, trouble in kinds.items()})


def _play(
    name: str, trouble: Callable[[Arena, Random], None], operation: Operation, arena: Arena, random: Random
) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=3)
    job = trial.start()
    _pause(job, random.uniform(*_WHEN))
    trouble(arena, random)
    arena.counts[name] += 1
    trial.judged(arena.end_of(job), committed=True)


def _pause(job: Job, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not job.status.ended:
        time.sleep(0.05)


def _killed(arena: Arena, random: Random) -> None:
    arena.processes.kill("redis")
    time.sleep(random.uniform(0, 2))
    arena.start_part("redis")


def _flushed(arena: Arena, random: Random) -> None:
    arena.redis.flushall()


def _full(arena: Arena, random: Random) -> None:
    """Not another byte is taken."""
    arena.redis.config_set("maxmemory", 1)
    time.sleep(random.choice(_AWAY))
    arena.redis.config_set("maxmemory", 0)


def _slow(arena: Arena, random: Random) -> None:
    """Every answer takes its time."""
    for _ in range(random.randint(2, 8)):
        arena.redis.client_pause(1000)
        time.sleep(1.0)


def _away(arena: Arena, random: Random) -> None:
    """Connections stay open, and nobody answers."""
    with arena.processes.halted("redis"):
        time.sleep(random.choice(_AWAY))
