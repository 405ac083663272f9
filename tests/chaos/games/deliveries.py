"""Messages that come twice, late, in any order, or never; and one that kills whoever takes it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, cast

from producer import Job
from producer.broker.queue import QUEUES, STAGING, SWEEP, Messenger
from producer.model.job import Operation, Status
from tests.chaos.arena import Arena
from tests.chaos.faults import Effect, Fault, Step
from tests.chaos.game import Game, in_both
from tests.chaos.invariants import Violated
from tests.chaos.trial import Trial
from tests.chaos.victims import WORKERS

#: Of messages that are sent again, and seconds from one time to the next.
_TIMES: Final = 6
_PAUSE: Final = (0.05, 1.0)
_UNITS: Final = 6
_QUEUES: Final = tuple(queue for task, queue in QUEUES.items() if task != SWEEP)
#: What holds up one kind of messages or the other, so that they wait to be lost.
_STOPPED: Final = ((), ("committer",), WORKERS, WORKERS)


def games() -> list[Game]:
    """Each kind of trouble in both kinds of work."""
    kinds = {
        "messages come again": _again,
        "messages are lost": _lost,
        "messages are given to others": _expired,
        "a worker is lost with its messages": _lost_with_worker,
    }
    troubled = in_both({name: partial(_play, trouble) for name, trouble in kinds.items()})
    return troubled + in_both({"messages in any order": _shuffled, "a unit kills its worker every time": _deadly})


def _play(trouble: Callable[[Arena, Job, Random], None], operation: Operation, arena: Arena, random: Random) -> None:
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=_UNITS)
    job = trial.start()
    for _ in range(_TIMES):
        if job.status.ended:
            break
        trouble(arena, job, random)
        time.sleep(random.uniform(*_PAUSE))
    trial.judged(arena.end_of(job), committed=True)


def _again(arena: Arena, job: Job, random: Random) -> None:
    """Whatever may be on its way is sent once more, twice over, so that two workers may have it at once."""
    store, messenger = arena.store(job.id), Messenger(arena.settings)
    if (plan := store.latest_plan()) is None:
        return
    for _ in range(2):
        messenger.stage(plan, range(len(plan.units)))
        messenger.commit(job.id, plan.location)
    arena.counts["message sent again"] += 2 * len(plan.units) + 2


def _lost(arena: Arena, job: Job, random: Random) -> None:
    """Whatever waits in the queues is gone."""
    with arena.processes.halted(*random.choice(_STOPPED)):
        time.sleep(random.uniform(*_PAUSE))
        for queue in _QUEUES:
            while arena.redis.lpop(queue) is not None:
                arena.counts["message lost"] += 1


def _lost_with_worker(arena: Arena, job: Job, random: Random) -> None:
    """A worker dies, and nobody knows any more what was given to it."""
    arena.processes.kill(random.choice(WORKERS))
    arena.counts["message lost with its worker"] += arena.redis.zcard("unacked_index")
    arena.redis.delete("unacked", "unacked_index")
    arena.revive()


def _expired(arena: Arena, job: Job, random: Random) -> None:
    """What somebody works on is delivered to somebody else too: the unit takes longer than the visibility timeout."""
    arena.counts["delivery expired"] += arena.redis.zcard("unacked_index")
    arena.let_deliveries_expire()
    arena.redeliver()


def _shuffled(operation: Operation, arena: Arena, random: Random) -> None:
    """Units are staged in any order, and the request to commit comes before them."""
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=2 * _UNITS)
    queue = QUEUES[STAGING[operation]]
    with arena.processes.halted(*WORKERS):
        job = trial.start()
        plan = arena.planned(job.id)
        arena.processes.wait_for("messages", lambda: arena.redis.llen(queue) >= _UNITS)
        Messenger(arena.settings).commit(job.id, plan.location)
        messages = cast("list[str]", arena.redis.lrange(queue, 0, -1))
        random.shuffle(messages)
        with arena.redis.pipeline() as pipe:
            pipe.delete(queue)
            pipe.rpush(queue, *messages)
            pipe.execute()
        arena.counts["message out of order"] += len(messages)
    trial.judged(arena.end_of(job), committed=True)


def _deadly(operation: Operation, arena: Arena, random: Random) -> None:
    """It is given up, and the others are committed."""
    trial = Trial.of(arena, operation, random.choice((2, 3)), units=3)
    effect = random.choice((Effect.KILL_CHILD, Effect.KILL_WORKER))
    for _ in range(arena.settings.max_attempts):
        arena.arsenal.arm(Fault(Step.UNIT_TAKEN, effect, where="attempt-1-"))
    report = trial.judged(arena.end_of(trial.start()))
    reasons = [failure.reason for failure in report.failures]
    if report.status is not Status.PARTIAL or len(reasons) != 1 or "its worker died" not in reasons[0]:
        raise Violated(f"one unit of three was to fail, because its worker died: {report}")
    trial.done_after_all()
