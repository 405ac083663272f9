"""What a campaign is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.chaos.arena import Arena


@dataclass(frozen=True)
class Game:
    """One way to break a fleet: plays it, and raises AssertionError when something does not hold."""

    name: str
    play: Callable[[Arena, Random], None]
