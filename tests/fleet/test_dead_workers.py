"""Workers that are killed with everything that belongs to them: what they held goes to others soon, by itself.

Nothing is told to anybody, and Redis' visibility timeout is as long as it is in production.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import cast

import pytest

from producer import Job
from producer.broker.leases import Holder
from producer.broker.queue import Messenger
from tests.fleet.battered import Case, complete
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants
from tests.fleet.tables import stuck

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

LEASE = 6
#: A sweeper that comes too late for all of this: workers see for themselves that others are dead.
SWEEP = 600
PROMISED = 120.0


@pytest.fixture(scope="module")
def mortal(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A fleet that sees soon that a worker is dead."""
    with LocalFleet(
        tmp_path_factory.mktemp("dead"), spark=False, **SMALL, sweep_seconds=SWEEP, max_attempts=3, lease_seconds=LEASE
    ) as fleet:
        fleet.start_redis()
        yield fleet


@pytest.fixture
def fleet(mortal: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    """The fleet, with whatever the last test took from it put back."""
    mortal.attach(monkeypatch)
    complete(mortal)
    return mortal


def _holder(fleet: LocalFleet, job: Job, unit: int) -> Holder:
    """Wait until a worker is at a unit."""

    def found() -> Holder | None:
        return next((holder for holder in job.progress().holders if holder.unit == unit), None)

    return fleet.processes.wait_for(f"holder of unit {unit} of {job.id}", found)


def _is_at(fleet: LocalFleet, job: Job, name: str) -> bool:
    return any(holder.worker.startswith(f"{name}@") for holder in job.progress().holders)


def _worker_at(fleet: LocalFleet, job: Job, unit: int) -> tuple[str, int]:
    """Wait until a worker is at a unit; its name, and the process id of its child."""
    _holder(fleet, job, unit)
    lease = fleet.redis.hget(f"icefleet:holders:{job.id}", f"convert:{job.id}:0:{unit}")
    token = json.loads(cast("str", lease))["token"]
    return token.partition("@")[0], int(token.rpartition("/")[2])


def test_a_unit_of_a_killed_worker_is_done_by_another(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "killed", units=3)
    with stuck(case.table, 1):
        job = case.start()
        lost, _ = fleet.child_at(job.id, 1)
        holder = _holder(fleet, job, 1)
        assert holder.worker.startswith(f"{lost}@")
        assert holder.partition == "part=1"
        assert holder.since <= holder.seen
        assert holder.silent < LEASE
        fleet.processes.kill(lost)
    started = time.monotonic()
    (other,) = {"red", "blue"} - {lost}
    with fleet.processes.halted(other):  # so that nobody takes it while it is looked at
        assert f"unit 1 (part=1): {holder.worker} since " in fleet.icefleet("status", job.id).stdout
        (told,) = [told for told in fleet.json("status", job.id)["holders"] if told["unit"] == 1]
    assert told["silent"] > 1
    assert (told["worker"], told["seen"] >= holder.seen) == (holder.worker, True)
    case.ended(job)
    assert time.monotonic() - started < PROMISED
    assert job.progress().holders == ()


def test_a_worker_that_is_stopped_for_a_while_and_goes_on(fleet: LocalFleet) -> None:
    """It is taken for dead, and another does the unit; what it acknowledges when it goes on is not the other's."""
    case = Case.of(fleet, "stopped", units=1)
    with stuck(case.table, 0):
        job = case.start()
        stopped, child = _worker_at(fleet, job, 0)
        with fleet.processes.halted(stopped):
            others = lambda: [h for h in job.progress().holders if not h.worker.startswith(f"{stopped}@")]  # noqa: E731
            assert fleet.processes.wait_for("another worker", others)[0].unit == 0
        _, other = _worker_at(fleet, job, 0)
        assert other != child
    fleet.kill_child(child)  # both read for ever
    fleet.kill_child(other)
    case.ended(job)


def test_a_worker_that_is_stopped_at_once_gives_its_lease_up(fleet: LocalFleet) -> None:
    """Whoever takes the unit need not wait until the lease lapses."""
    case = Case.of(fleet, "givenback", units=1)
    with stuck(case.table, 0):
        job = case.start()
        name, _ = _worker_at(fleet, job, 0)
        for _ in range(2):
            fleet.processes.terminate(name)
            time.sleep(0.5)
        fleet.processes.ended(name)
        assert not _is_at(fleet, job, name)
        _, other = _worker_at(fleet, job, 0)
    fleet.kill_child(other)  # it reads for ever
    case.ended(job)


@pytest.mark.parametrize("message", ["plan", "commit"])
def test_what_a_killed_committer_held_is_done_by_another(fleet: LocalFleet, message: str) -> None:
    case = Case.of(fleet, f"{message}held", units=1)
    fleet.processes.kill("committer")
    if message == "commit":
        reached = fleet.start_paused_committer("doomed", "before")
        job = case.start()
        fleet.processes.wait_for("committer before the swap", reached.exists)
        fleet.processes.kill("doomed")
    else:
        fleet.start_committer("doomed")
        fleet.answering("doomed")
        for child in descendants(fleet.processes.running["doomed"].pid):
            child.suspend()  # so that it holds the message when it dies
        job = case.start()
        fleet.processes.wait_for("a message that is held", lambda: fleet.redis.hlen("icefleet:deliveries"))
        fleet.processes.kill("doomed")
    fleet.start_committer("committer")
    started = time.monotonic()
    case.ended(job)
    assert time.monotonic() - started < PROMISED


def test_a_message_that_came_twice_waits_for_who_is_at_its_unit(fleet: LocalFleet) -> None:
    """It neither has it worked on a second time nor counts as an attempt."""
    case = Case.of(fleet, "doubled", units=1)
    with stuck(case.table, 0):
        job = case.start()
        at_work, child = _worker_at(fleet, job, 0)
        plan = fleet.planned(job.id)
        for _ in range(3):
            Messenger(fleet.settings).stage(plan, [0])
        (other,) = {"red", "blue"} - {at_work}
        log = fleet.processes.log(other)
        held = f"{at_work}@{socket.gethostname()} is working on it"
        fleet.processes.wait_for("a second look", lambda: log.read_text().count(held) >= 8)
        assert len(fleet.store(job.id).at(plan).attempts(0)) == 1
    killed = time.monotonic()
    fleet.kill_child(child)  # it reads for ever
    case.ended(job)
    assert time.monotonic() - killed < 60


def test_redis_that_is_lost_and_comes_back_has_nothing_done_twice(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "restarted", units=1)
    with stuck(case.table, 0):
        job = case.start()
        _, child = _worker_at(fleet, job, 0)
        fleet.processes.kill("redis")
        time.sleep(2 * LEASE)
        fleet.start_redis()
        fleet.__dict__.pop("celery").close()  # this process' own connections were lost, too
        plan = fleet.planned(job.id)
        time.sleep(3 * LEASE)
        (attempt,) = fleet.store(job.id).at(plan).attempts(0)
        assert attempt.number == 0
    fleet.kill_child(child)  # it reads for ever
    case.ended(job)


def test_a_message_taken_by_a_worker_that_died_at_once_is_given_back(fleet: LocalFleet) -> None:
    """Nobody has vouched for it: the worker had no time to."""
    case = Case.of(fleet, "takenaway", units=1)
    fleet.processes.kill("committer")
    job = case.start()
    text = cast("str", fleet.redis.rpop("plan"))
    tag = json.loads(text)["properties"]["delivery_tag"]
    fleet.redis.hset("unacked", tag, json.dumps([json.loads(text), "plan", "plan"]))
    fleet.redis.zadd("unacked_index", {tag: time.time()})
    fleet.start_committer("committer")
    case.ended(job)


def test_what_other_applications_have_in_the_same_redis_stays_theirs(fleet: LocalFleet) -> None:
    message = {"body": "", "headers": {"id": "1", "task": "theirs.work"}, "properties": {"delivery_tag": "t"}}
    fleet.redis.hset("unacked", "t", json.dumps([message, "theirs", "theirs"]))
    time.sleep(4 * LEASE)
    assert fleet.redis.hdel("unacked", "t") == 1
