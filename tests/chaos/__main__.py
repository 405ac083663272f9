"""``make chaos``: break a fleet on purpose for as long as one likes, and see what holds."""

from __future__ import annotations

import json
import math
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import click
from rich.console import Console
from rich.table import Column, Table

from tests.chaos import repertoire
from tests.chaos.campaign import Account, Campaign, arena, remove
from tests.chaos.invariants import Invariant


@click.command()
@click.option(
    "--minutes",
    default=30.0,
    show_default=True,
    help="How long, in rounds with games of all kinds; what has begun is ended.",
)
@click.option("--once", is_flag=True, help="Every game once, however long it takes.")
@click.option("--seed", default=0, show_default=True, help="Of the order of games and of all that they draw.")
@click.option("--again", type=int, help="Each game once with this seed, as it was printed.")
@click.option("--only", default="", help="Games whose names hold this text.")
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON.")
@click.option("--list", "list_only", is_flag=True, help="Name the games and play none.")
@click.option("--keep", is_flag=True, help="Leave tables and logs, and say where.")
def main(
    minutes: float, once: bool, seed: int, again: int | None, only: str, as_json: bool, list_only: bool, keep: bool
) -> None:
    """Break a fleet on purpose and show that nothing is lost.

    Starts Redis, a committer, its clock and two workers on this machine. Exits with 1 when something did not hold.

    \b
    Examples:
      python -m tests.chaos --minutes 5
      python -m tests.chaos --once --only "the JVM is killed"
      python -m tests.chaos --only "messages are lost: compact" --again 28162508
      python -m tests.chaos --list
    """
    games = [game for game in repertoire.all_games() if only in game.name]
    console = Console(stderr=True, highlight=False)
    if list_only:
        for game in games:
            click.echo(game.name)
        return
    if not games:
        raise click.UsageError(f"no game has {only!r} in its name: --list names them")
    if shutil.which("redis-server") is None:
        raise click.ClickException("there is no redis-server: install Redis 6.2 or newer")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the fleet is stopped then, too
    console.print(f"starting a fleet to be broken; {len(games)} games to draw from")
    folder = Path(tempfile.mkdtemp(prefix="icefleet-chaos-"))
    try:
        with arena(folder) as made:
            campaign = Campaign(made, partial(console.print, soft_wrap=True))
            if again is not None:
                account = campaign.play(((game, again) for game in games), math.inf)
            elif once:
                account = campaign.play(repertoire.once(games, Random(seed)), math.inf)
            else:
                account = campaign.play(repertoire.rounds(games, Random(seed)), minutes * 60)
    finally:
        if keep:
            console.print(f"tables and logs: {folder}")
        else:
            remove(folder)
    if as_json:
        click.echo(json.dumps(account.as_dict(), indent=1))
    else:
        Console(highlight=False).print(*_tables(account))
    sys.exit(1 if account.violations else 0)


def _tables(account: Account) -> Iterator[Table]:
    """What was injected, how often, and how each invariant held."""
    title = f"{account.faults.total():,} faults in {account.games.total():,} games, {account.seconds / 60:.1f} min"
    faults = Table("fault", Column("times", justify="right"), title=title, title_justify="left")
    for name, times in account.faults.most_common():
        faults.add_row(name, f"{times:,}")
    yield faults
    columns = (Column(name, justify="right") for name in ("held", "violated"))
    invariants = Table("invariant", *columns, title_justify="left")
    for name in Invariant:
        invariants.add_row(name, f"{account.held[name]:,}", f"{account.violated[name]:,}")
    yield invariants


if __name__ == "__main__":
    main()
