"""All games."""

from __future__ import annotations

from tests.chaos.game import Game
from tests.chaos.games import anything, brokers, clocks, deliveries, memory, processes, races, storage, tables


def all_games() -> list[Game]:
    """Every game there is, the same names in the same order each time."""
    return [
        game
        for kind in (processes, deliveries, brokers, storage, memory, clocks, tables, races, anything)
        for game in kind.games()
    ]
