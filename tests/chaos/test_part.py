"""A part of the campaign, small enough for every run: each kind of trouble, with the same draws each time."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.chaos.campaign import Campaign, arena
from tests.chaos.games import clocks, memory
from tests.chaos.invariants import Invariant
from tests.chaos.repertoire import all_games

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

PART = (
    "the worker's machine is lost: file half written, convert",
    "the worker's child is killed: record staged, compact",
    "the JVM is killed: unit taken, compact",
    "the committer's machine is lost: manifests written, convert",
    "the committer's machine is lost: after the swap, compact",
    "the clock is killed: plan written, convert",
    "the producer is killed: before the swap, convert",
    "messages come again: convert",
    "messages are lost: compact",
    "Redis is killed: convert",
    "Redis forgets: compact",
    "storage fails: convert",
    "storage and catalog fail: compact",
    "rows of its files are deleted: compact",
    "the table is rolled back: convert",
    "two fleets, one table: compact",
    "requests to the store fail: compact",
    "requests to the store fail and processes die: convert",
)


def test_a_part_of_the_campaign(redis_installed: None, tmp_path: Path) -> None:
    games = {game.name: game for game in all_games()}
    with arena(tmp_path) as fleet:
        account = Campaign(fleet, print).play(((games[name], seed) for seed, name in enumerate(PART)), math.inf)
    assert account.violations == []
    assert account.faults.total() >= len(PART)
    assert all(account.held[invariant] >= len(PART) for invariant in Invariant)


def test_games_that_this_machine_cannot_play_are_missing_alone() -> None:
    names = [game.name for game in all_games()]
    assert len(names) == len(set(names))
    assert len(names) >= 150
    for games, word in ((clocks.games(), "clock of"), (memory.games(), "memory runs out")):
        assert bool(games) == any(word in name for name in names)
