"""Jobs one after another while a writer never stops."""

from __future__ import annotations

import threading
import time
from functools import partial
from random import Random
from typing import Final

from producer.messages import Operation, Status
from tests.chaos import invariants
from tests.chaos.arena import Arena
from tests.chaos.game import Game
from tests.chaos.invariants import Violated
from tests.fleet.writers import Writer, judge
from tests.support import oracle

#: Jobs of one game, and seconds from one commit of the writer to the next.
JOBS: Final = 10
_EVERY: Final = 1.0


def games() -> list[Game]:
    """Conversions and compactions, mixed, in both versions."""
    return [Game(f"a writer goes on: version {version}", partial(_play, version)) for version in (2, 3)]


def _play(version: int, arena: Arena, random: Random) -> None:
    writer = Writer.of(arena.catalog, f"db.race{random.randrange(1 << 30)}", version)
    stop = threading.Event()
    thread = threading.Thread(target=_write, args=(writer, Random(random.random()), stop))
    thread.start()
    ends = []
    try:
        for _ in range(JOBS):
            operation = random.choice(list(Operation))
            ask = arena.fleet.compact if operation is Operation.COMPACT else arena.fleet.convert
            report = arena.end_of(ask(writer.table.identifier))
            invariants.ends_with_a_reason(report)
            ends.append(report.status)
            arena.told[f"race of a {operation}"] += 1
    finally:
        stop.set()
        thread.join()
    if Status.COMMITTED not in ends:
        raise Violated(f"no progress beside a writer: {ends}")
    arena.whole()
    table = writer.table.table
    if oracle.rows(table) != writer.rows:
        raise Violated("the rows are not those of the writer's commits")
    judge(table)
    invariants.committed_once(table)
    invariants.totals_are_right(table)
    invariants.nothing_is_left(table, arena.records(writer.table.identifier))


def _write(writer: Writer, random: Random, stop: threading.Event) -> None:
    while not stop.wait(_EVERY):
        known = sorted(writer.notes)
        kind = random.randrange(3)
        if kind == 0:
            writer.append()
        elif kind == 1:
            writer.upsert([*random.sample(known, 5), known[-1] + 1000])
        else:
            writer.delete(random.sample(known, 2))
        time.sleep(0)
