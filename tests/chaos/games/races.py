"""Jobs one after another while a writer never stops."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import Random
from typing import Final

from producer import Job
from producer.model.job import Operation, Status
from tests.chaos import invariants
from tests.chaos.arena import Arena
from tests.chaos.game import Game
from tests.chaos.invariants import Violated
from tests.fleet.writers import Writer

#: Jobs of one game, and seconds from one commit of the writer to the next.
JOBS: Final = 20
_EVERY: Final = 1.0
_NAMES: Final = {Operation.CONVERT: "conversion", Operation.COMPACT: "compaction"}


def games() -> list[Game]:
    """Conversions and compactions, mixed, in both versions."""
    return [Game(f"a writer goes on: version {version}", partial(_play, version)) for version in (2, 3)]


def _play(version: int, arena: Arena, random: Random) -> None:
    writer = Writer.of(arena.catalog, f"db.race{random.randrange(1 << 30)}", version)
    stop, ends = threading.Event(), []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(_write, writer, Random(random.random()), stop)
        try:
            for operation in random.sample(list(Operation) * (JOBS // 2), JOBS):
                report = arena.end_of(_ask(arena, writer.table.identifier, operation))
                invariants.ends_with_a_reason(report)
                ends.append((operation, report.status))
                arena.counts[f"race of a {_NAMES[operation]}"] += 1
        finally:
            stop.set()
            writing.result()
    for operation in Operation:
        if (operation, Status.COMMITTED) not in ends:
            raise Violated(f"no {_NAMES[operation]} makes progress beside a writer: {ends}")
    arena.whole()
    table = writer.table.table
    invariants.rows_by_hand_are(table, writer.rows)
    invariants.no_snapshot_changed_rows(table)
    invariants.committed_once(table)
    invariants.totals_are_right(table)
    arena.clean(lambda: invariants.nothing_is_left(table, arena.records(writer.table.identifier)))


def _ask(arena: Arena, table: str, operation: Operation) -> Job:
    return arena.fleet.compact(table, tier="full") if operation is Operation.COMPACT else arena.fleet.convert(table)


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
