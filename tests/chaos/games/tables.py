"""Tables that change under a job in every way that others can change them."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from random import Random
from typing import Final

from producer import Job, Report
from producer.model.job import Operation, Status
from tests.chaos import invariants, upheavals
from tests.chaos.arena import Arena
from tests.chaos.game import Game, in_both
from tests.chaos.invariants import Violated
from tests.chaos.upheavals import Scene, Upheaval
from tests.chaos.victims import WORKERS
from tests.support import oracle

#: Seconds from a job's start to the upheaval, where it does not wait for the plan.
_WHEN: Final = (0.0, 1.0)
_UPHEAVALS: Final[dict[str, Upheaval]] = {
    "rows of its files are deleted": upheavals.deletes,
    "another compactor keeps old sequence numbers": upheavals.compaction,
    "the schema evolves": upheavals.another_schema,
    "the partition spec evolves": upheavals.another_spec,
    "the format version rises": upheavals.upgrade,
    "the table is rolled back": upheavals.rollback,
    "the branch moves": upheavals.branch,
    "the plan's snapshot expires": upheavals.expiry,
    "the table is dropped": upheavals.drop,
    "the table is renamed": upheavals.rename,
    "another table takes the name": upheavals.recreation,
}


def games() -> list[Game]:
    """Each upheaval in both kinds of work, and two fleets at one table."""
    shaken = {name: partial(_play, name) for name in _UPHEAVALS}
    return in_both(shaken | {"two fleets, one table": _two_fleets})


def _play(name: str, operation: Operation, arena: Arena, random: Random) -> None:
    upheaval = _UPHEAVALS[name]
    scene = Scene.of(arena.catalog, random.choice((2, 3)), random)
    if upheaval is upheavals.branch:
        scene.branch = "audit"
        scene.writer.table.table.manage_snapshots().create_branch(scene.head, scene.branch).commit()
    before = scene.files
    job = _ask(arena, scene, operation)
    if random.random() < 0.5:
        with arena.processes.halted(*WORKERS):
            _planned(arena, job)
            expected = _alone(arena, scene, upheaval)
    else:
        time.sleep(random.uniform(*_WHEN))
        expected = _alone(arena, scene, upheaval)
    arena.counts[name] += 1
    _judge(arena, scene, before, expected, arena.end_of(job))
    if scene.table is not None:
        again = arena.end_of(_ask(arena, scene, operation))
        if again.status not in {Status.COMMITTED, Status.NOTHING_TO_DO}:
            raise Violated(f"undisturbed it ended as {again.status}: {again.reason}")
        _judge(arena, scene, before, expected, again)


def _alone(arena: Arena, scene: Scene, upheaval: Upheaval) -> Counter[oracle.Row]:
    """Nobody else commits while somebody does what is valid only for the head that he has seen."""
    while True:
        with arena.processes.halted("committer", *WORKERS):
            if arena.catalog_is_free():
                return upheaval(scene)
        time.sleep(0.05)  # somebody was stopped with a lock in his hand


def _two_fleets(operation: Operation, arena: Arena, random: Random) -> None:
    """Two jobs that know nothing of each other, as of fleets with a Redis each."""
    scene = Scene.of(arena.catalog, random.choice((2, 3)), random)
    before, jobs = scene.files, []
    for kind in (operation, random.choice(list(Operation)), random.choice(list(Operation))):
        jobs.append(_ask(arena, scene, kind))
        time.sleep(random.uniform(*_WHEN) / 2)
        for known in ("running", "waiting"):
            for key in arena.redis.scan_iter(f"icefleet:{known}:default:{scene.name}:*"):
                arena.redis.delete(key)
    arena.counts["two fleets, one table"] += 1
    for job in jobs:
        report = arena.end_of(job)
        invariants.ends_with_a_reason(report)
    _judge(arena, scene, before, scene.writer.rows, report)


def _ask(arena: Arena, scene: Scene, operation: Operation) -> Job:
    if operation is Operation.COMPACT:
        return arena.fleet.compact(scene.name, branch=scene.branch, tier="full")
    return arena.fleet.convert(scene.name, branch=scene.branch)


def _planned(arena: Arena, job: Job) -> None:
    """Wait for the plan, or the end of a job that has nothing to do."""
    arena.processes.wait_for("plan", lambda: job.status.ended or arena.store(job.id).plan(0) is not None, every=0.02)


def _judge(arena: Arena, scene: Scene, before: frozenset[str], expected: Counter[oracle.Row], report: Report) -> None:
    invariants.ends_with_a_reason(report)
    arena.whole()
    table, known = scene.table, before | scene.kept
    if table is None:
        invariants.nothing_came(scene.folder, known)
        return
    invariants.rows_by_hand_are(table, expected, scene.branch)
    invariants.no_snapshot_changed_rows(table)
    invariants.committed_once(table)
    invariants.totals_are_right(table)
    arena.clean(lambda: invariants.nothing_is_left(scene.writer.table.table, arena.records(scene.name), known))
