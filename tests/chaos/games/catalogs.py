"""A catalog that takes its time, and one that always prefers another writer."""

from __future__ import annotations

from random import Random

from producer.model.job import Operation, Status
from tests.chaos.arena import Arena
from tests.chaos.faults import Effect, Fault, Step
from tests.chaos.game import Game, in_both
from tests.chaos.invariants import Violated
from tests.chaos.trial import Trial


def games() -> list[Game]:
    """Each in both kinds of work."""
    return in_both({"catalog takes a minute": _very_slow, "somebody else is always faster": _beaten})


def _very_slow(operation: Operation, arena: Arena, random: Random) -> None:
    """It does what it is asked to, and a commit is on its way for long."""
    trial = Trial.of(arena, operation, random.choice((2, 3)))
    arena.arsenal.arm(Fault(random.choice((Step.BEFORE_SWAP, Step.AFTER_SWAP)), Effect.VERY_SLOW))
    trial.judged(arena.end_of(trial.start()), committed=True)


def _beaten(operation: Operation, arena: Arena, random: Random) -> None:
    """The job gives up and leaves nothing."""
    trial = Trial.of(arena, operation, random.choice((2, 3)))
    arena.arsenal.arm(*[Fault(Step.BEFORE_SWAP, Effect.BEATEN)] * arena.settings.commit_attempts)
    report = trial.judged(arena.end_of(trial.start()))
    if report.status is not Status.FAILED or "Other writers were faster" not in str(report.reason):
        raise Violated(f"it was to give up, with a reason: {report}")
    trial.done_after_all()
