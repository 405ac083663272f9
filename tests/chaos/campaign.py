"""A campaign: one game after another on one fleet, and an account of what was done to it and what held."""

from __future__ import annotations

import shutil
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

from pyiceberg.catalog import load_catalog

from tests.chaos.arena import LAKE, Arena
from tests.chaos.game import Game
from tests.chaos.invariants import HELD, Invariant, Violated


@dataclass
class Account:
    """What a campaign came to."""

    #: Injected faults by what they were.
    faults: Counter[str] = field(default_factory=Counter)
    #: Games that were played, by name.
    games: Counter[str] = field(default_factory=Counter)
    #: How often each invariant was looked at and held, and how often it was violated.
    held: Counter[str] = field(default_factory=Counter)
    violated: Counter[str] = field(default_factory=Counter)
    #: Of each game that did not go as it must: its name, its seed, and what was wrong.
    violations: list[tuple[str, int, str]] = field(default_factory=list)
    revived: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        """For programs."""
        return {
            "faults": self.faults.total(),
            "by_kind": dict(self.faults.most_common()),
            "games": self.games.total(),
            "invariants": {
                name: {"held": self.held[name], "violated": self.violated[name]} for name in map(str, Invariant)
            },
            "violations": [{"game": name, "seed": seed, "what": what} for name, seed, what in self.violations],
            "revived": self.revived,
            "seconds": round(self.seconds, 1),
        }


@contextmanager
def arena(folder: Path) -> Iterator[Arena]:
    """A fleet to be broken, known to this process too, which sees its catalog and storage as they are."""
    made = Arena(folder, max_attempts=5, commit_attempts=8)

    def known(name: str) -> object:
        catalog = made.lake if name == LAKE else made.catalog
        return load_catalog(name, **{**catalog.properties, "type": "sql"})

    with patch("producer.iceberg.catalog.load_catalog", known):
        try:
            made.start()
            yield made
        finally:
            made.stop()


class Campaign:
    """Plays games.

    Args:
        arena: Started, and whole.
        say: Told of each game, and how it went.
    """

    def __init__(self, arena: Arena, say: Callable[[str], None]) -> None:
        self._arena = arena
        self._say = say
        self.account = Account()

    def play(self, games: Iterable[tuple[Game, int]], seconds: float) -> Account:
        """Play games with their seeds, until there are no more or the time is over."""
        started = time.monotonic()
        for game, seed in games:
            self._play(game, seed)
            self.account.seconds = time.monotonic() - started
            if self.account.seconds > seconds:
                break
        return self.account

    def _play(self, game: Game, seed: int) -> None:
        arena, account, began = self._arena, self.account, time.monotonic()
        before, held = _counted(arena), HELD.copy()
        wrong = None
        try:
            game.play(arena, Random(seed))
        except Exception as error:  # the next game shows whether the fleet is still one
            wrong = "".join(traceback.format_exception_only(error)).strip()
            with (arena.root / "violations.log").open("a") as log:
                log.write(f"--- {game.name} (seed {seed})\n{traceback.format_exc()}\n")
            account.violations.append((game.name, seed, wrong))
            account.violated[error.invariant if isinstance(error, Violated) else Invariant.ENDS] += 1
        waiting = arena.arsenal.disarm()
        done = _counted(arena) - before
        account.faults += done
        account.held += HELD - held
        account.games[game.name] += 1
        account.revived = arena.revived
        counted = ", ".join(f"{times} × {name}" for name, times in done.items()) or "nothing"
        never = f"; {len(waiting)} did not come to pass" if waiting else ""
        verdict = f"[red]{wrong.splitlines()[0]}[/red]" if wrong else "[green]held[/green]"
        self._say(f"{verdict} {game.name} (seed {seed}, {time.monotonic() - began:.1f} s): {counted}{never}")
        if wrong:
            arena.rebuild()


def _counted(arena: Arena) -> Counter[str]:
    sprung = {f"{effect}: {step}": times for (step, effect), times in arena.arsenal.sprung().items()}
    return Counter(sprung) + arena.counts


def remove(folder: Path) -> None:
    """Remove what a campaign has left on disk."""
    shutil.rmtree(folder, ignore_errors=True)
