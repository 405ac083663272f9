"""Leases of units, and recovery of what silent workers hold: on a real Redis, step by step."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import pytest
import redis

from producer.broker.leases import Leases
from producer.common.settings import Settings
from tasks.messaging.heartbeat import OWNERS, DeliveryRecovery, beats_key
from tasks.messaging.lease import HeldByAnother, Lease
from tests.fleet.localfleet import LocalFleet

pytestmark = pytest.mark.redis

JOB = "convert:default:db.events:20240501T101500-1a2b3c4d"
TASK = f"convert:{JOB}:0:0"
UNITS = {TASK: (0, "part=0")}
LEASE = 3


@pytest.fixture(autouse=True)
def nothing(server: LocalFleet) -> None:
    """An empty Redis."""
    server.redis.flushall()


@pytest.fixture
def settings(server: LocalFleet) -> Settings:
    return server.settings.model_copy(update={"lease_seconds": LEASE})


def _deliver(broker: redis.Redis, tag: str, task: str = "icefleet.convert", id_: str = TASK) -> None:
    """What Celery's transport notes of a message that a worker took."""
    message = {"body": "W10=", "headers": {"id": id_, "task": task}, "properties": {"delivery_tag": tag}}
    broker.hset("unacked", tag, json.dumps([message, "convert", "convert"]))
    broker.zadd("unacked_index", {tag: time.time()})


def _waiting(broker: redis.Redis) -> list[dict[str, Any]]:
    return [json.loads(text) for text in cast("list[str]", broker.lrange("convert", 0, -1))]


class TestLease:
    """Who is at a unit."""

    def test_one_process_holds_a_unit(self, settings: Settings) -> None:
        with Lease(settings, JOB, TASK, "red@one"):
            assert Leases(settings).acquire(JOB, TASK, "blue@two", "blue/1") == "red@one"
            assert [holder.worker for holder in Leases(settings).holders_of(JOB, UNITS)] == ["red@one"]
        assert Leases(settings).holders_of(JOB, UNITS) == ()
        assert Leases(settings).acquire(JOB, TASK, "blue@two", "blue/1") is None
        with pytest.raises(HeldByAnother, match="blue@two"), Lease(settings, JOB, TASK, "red@one"):
            raise AssertionError

    def test_it_lasts_as_long_as_the_work_and_carries_its_progress(self, settings: Settings) -> None:
        with Lease(settings, JOB, TASK, "red@one") as lease:
            lease.progress(3, 7)
            time.sleep(2 * LEASE)
            (holder,) = Leases(settings).holders_of(JOB, UNITS)
            assert (holder.files_done, holder.files, holder.partition) == (3, 7, "part=0")
            assert holder.silent < LEASE
            assert holder.seen - holder.since > LEASE
            assert Leases(settings).acquire(JOB, TASK, "blue@two", "blue/1") == "red@one"

    def test_one_that_lapsed_is_looked_at_twice(self, settings: Settings) -> None:
        """Redis may have been away: its holder has time to renew it."""
        leases = Leases(settings)
        leases.acquire(JOB, TASK, "red@one", "red/1")
        time.sleep(1.1 * LEASE)
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") == "red@one"
        leases.renew(JOB, TASK, "red/1", 1, 2)
        time.sleep(0.7 * LEASE)
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") == "red@one"
        time.sleep(0.5 * LEASE)
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") == "red@one"
        time.sleep(0.6 * LEASE)
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") is None
        leases.renew(JOB, TASK, "red/1", 2, 2)  # it was only stopped, and goes on
        leases.release(JOB, TASK, "red/1")
        assert [holder.worker for holder in leases.holders_of(JOB, UNITS)] == ["blue@two"]

    def test_without_a_redis_every_unit_is_free(self) -> None:
        none = Settings(_env_file=None, broker_url="memory://")
        with Lease(none, JOB, TASK, "red@one"), Lease(none, JOB, TASK, "blue@two"):
            assert Leases(none).holders_of(JOB, UNITS) == ()


class TestDeliveryRecovery:
    """Deliveries of dead workers."""

    def _scan(self, server: LocalFleet, times: int, *, beating: bool = False) -> list[list[str]]:
        recovery = DeliveryRecovery(server.redis, 60)
        found = []
        for _ in range(times):
            if beating:
                server.redis.incr(beats_key("red"))
            found.append(recovery.scan())
        return found

    def test_a_silent_worker_loses_what_it_holds(self, server: LocalFleet) -> None:
        _deliver(server.redis, "t1")
        server.redis.hset(OWNERS, "t1", "red")
        server.redis.incr(beats_key("red"))
        assert self._scan(server, 5) == [[], [], [], [TASK], []]
        (message,) = _waiting(server.redis)
        assert message["headers"] == {"id": TASK, "task": "icefleet.convert", "redelivered": True}
        assert message["properties"]["delivery_tag"] != "t1", "what the worker acknowledges when it goes on"
        assert not server.redis.exists("unacked", "unacked_index", OWNERS)

    def test_the_lease_of_a_dead_worker_is_free_as_soon_as_it_has_lapsed(
        self, server: LocalFleet, settings: Settings
    ) -> None:
        """Nobody waits for a second look at it."""
        leases = Leases(settings)
        leases.acquire(JOB, TASK, "red@one", "red/1")
        _deliver(server.redis, "t1")
        server.redis.hset(OWNERS, "t1", "red")
        assert self._scan(server, 4)[-1] == [TASK]
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") == "red@one", "it may have been renewed just now"
        time.sleep(1.1 * LEASE)
        assert leases.acquire(JOB, TASK, "blue@two", "blue/1") is None

    def test_one_that_stops_gives_back_what_it_holds_at_once(self, server: LocalFleet) -> None:
        for tag, worker in (("t1", "red"), ("t2", "blue")):
            _deliver(server.redis, tag)
            server.redis.hset(OWNERS, tag, worker)
        DeliveryRecovery(server.redis, 60).give_back_all_of("red")
        assert len(_waiting(server.redis)) == 1
        assert server.redis.hkeys("unacked") == ["t2"]

    def test_one_that_beats_keeps_it(self, server: LocalFleet) -> None:
        _deliver(server.redis, "t1")
        server.redis.hset(OWNERS, "t1", "red")
        assert self._scan(server, 10, beating=True) == [[]] * 10

    def test_a_delivery_without_an_owner_is_given_back_later_and_once(self, server: LocalFleet) -> None:
        """A worker of the release before records no owner, and may work on it for long."""
        _deliver(server.redis, "t1")
        assert self._scan(server, 7) == [[]] * 6 + [[TASK]]
        server.redis.delete("convert")
        _deliver(server.redis, "t2")
        assert self._scan(server, 10) == [[]] * 10

    def test_what_is_not_ours_stays(self, server: LocalFleet) -> None:
        _deliver(server.redis, "t1", task="theirs.work")
        server.redis.hset("unacked", "t2", "no JSON")
        assert self._scan(server, 10) == [[]] * 10
        assert server.redis.hlen("unacked") == 2

    def test_time_without_redis_is_no_silence(self, server: LocalFleet) -> None:
        _deliver(server.redis, "t1")
        server.redis.hset(OWNERS, "t1", "red")
        server.redis.incr(beats_key("red"))
        recovery = DeliveryRecovery(server.redis, 60)
        assert [recovery.scan() for _ in range(3)] == [[]] * 3
        recovery.broker = redis.Redis(port=1)
        with pytest.raises(redis.ConnectionError):
            recovery.scan()
        recovery.broker = server.redis
        assert [recovery.scan() for _ in range(4)] == [[]] * 3 + [[TASK]]
