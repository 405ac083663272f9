"""What a campaign is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random

from producer.model.job import Operation
from tests.chaos.arena import Arena


@dataclass(frozen=True)
class Game:
    """One way to break a fleet: plays it, and raises AssertionError when something does not hold."""

    name: str
    play: Callable[[Arena, Random], None]


def in_both(plays: Mapping[str, Callable[[Operation, Arena, Random], None]]) -> list[Game]:
    """Ways to break a fleet by their names, each in conversions and in compactions."""
    return [Game(f"{name}: {operation}", partial(plays[name], operation)) for name in plays for operation in Operation]
