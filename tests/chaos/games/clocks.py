"""Machines whose clocks differ by minutes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from producer.model.job import Operation
from tests.chaos.arena import Arena
from tests.chaos.game import Game, in_both
from tests.chaos.trial import Trial

#: Minutes by which a machine may be ahead or behind.
_MINUTES: Final = (-15, -3, 3, 15)
_PLACES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1")


def library() -> Path | None:
    """What makes a process believe in another time; None where it is not installed."""
    return next((path for place in _PLACES for path in Path("/").glob(place.lstrip("/"))), None)


def games() -> list[Game]:
    """One worker, or the committer, is at another time; none where nothing can make it believe so."""
    parts = ("red", "committer") if library() else ()
    return in_both({f"the clock of {part} is wrong": partial(_play, part) for part in parts})


def _play(part: str, operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=3)
    with arena.another_time(part, random.choice(_MINUTES), str(library())):
        arena.counts[f"clock of {part} wrong"] += 1
        trial.judged(arena.end_of(trial.start()), committed=True)
