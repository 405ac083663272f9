"""All games, and the order in which they are played."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random
from typing import Final, TypeVar

from tests.chaos.game import Game
from tests.chaos.games import (
    anything,
    brokers,
    catalogs,
    clocks,
    deliveries,
    memory,
    object_stores,
    processes,
    races,
    storage,
    tables,
)

T = TypeVar("T")

#: Each kind of games, and how many of it are played in a round; of those that take minutes one now and then.
KINDS: Final = (
    (processes, 6.0),
    (deliveries, 2.0),
    (brokers, 1.0),
    (storage, 10.0),
    (object_stores, 3.0),
    (catalogs, 0.4),
    (memory, 0.1),
    (clocks, 0.3),
    (tables, 2.0),
    (races, 0.3),
    (anything, 0.4),
)


def all_games() -> list[Game]:
    """Every game there is, the same names in the same order each time."""
    return [game for kind, _ in KINDS for game in kind.games()]


def once(games: Iterable[Game], random: Random) -> Iterator[tuple[Game, int]]:
    """All games in some order, each with a seed of its own."""
    for game in _shuffled(games, random):
        yield game, random.randrange(1 << 30)


def rounds(games: Iterable[Game], random: Random) -> Iterator[tuple[Game, int]]:
    """Round after round without an end, in each of them games of all kinds; none comes again before all of its kind."""
    names = {game.name for game in games}
    decks = [([game for game in kind.games() if game.name in names], share) for kind, share in KINDS]
    dealt = [(_endless(deck, random), share) for deck, share in decks if deck]
    for _ in itertools.count():
        hand = [next(deck) for deck, share in dealt for _ in range(int(share + random.random()))]
        yield from once(hand, random)


def _endless(deck: list[T], random: Random) -> Iterator[T]:
    while True:
        yield from _shuffled(deck, random)


def _shuffled(values: Iterable[T], random: Random) -> list[T]:
    drawn = list(values)
    random.shuffle(drawn)
    return drawn
