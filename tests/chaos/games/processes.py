"""Processes that are killed: each part of a fleet, at each step of a job."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import Final

from producer.model.job import Operation
from tests.chaos.arena import Arena
from tests.chaos.faults import WAY, Effect, Fault, Step
from tests.chaos.game import Game
from tests.chaos.trial import Trial

KILLS: Final = tuple(effect for effect in Effect if effect.name.startswith("KILL_"))


def games() -> list[Game]:
    """Whoever may be killed, at every step, in both kinds of work."""
    return [
        Game(f"{effect}: {step}, {operation}", partial(_play, step, effect, operation))
        for step in WAY
        for effect in KILLS
        for operation in Operation
    ]


def _play(step: Step, effect: Effect, operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)))
    arena.arsenal.arm(Fault(step, effect))
    if effect is Effect.KILL_PRODUCER:
        command = ("compact", trial.table.identifier, "--tier", "full")
        arena.start_producer(*(command if operation is Operation.COMPACT else ("convert", trial.table.identifier)))
        job = arena.job_at(trial.table.identifier, operation)
    else:
        job = trial.start()
    report = arena.end_of(job)
    trial.judged(report, committed=True)
