"""Connections of whoever enqueues: made once, shared by threads, made anew by forked processes and after a restart."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest
import redis

from producer import Fleet
from tests.fleet.localfleet import LocalFleet

pytestmark = pytest.mark.redis

_numbers = count()


def enqueue(fleet: Fleet) -> str:
    return fleet.convert(f"db.enqueued{next(_numbers)}").id


def connections(server: LocalFleet) -> int:
    return int(server.redis.info("stats")["total_connections_received"])


def test_many_jobs_take_no_more_connections_than_one(server: LocalFleet) -> None:
    enqueue(server.fleet)
    before = connections(server)
    for _ in range(20):
        enqueue(server.fleet)  # each with objects of its own
    assert connections(server) == before


def test_threads_enqueue_side_by_side(server: LocalFleet) -> None:
    enqueue(server.fleet)
    before, waiting = connections(server), server.redis.llen("plan")
    with ThreadPoolExecutor(16) as pool:
        jobs = set(pool.map(lambda _: enqueue(server.fleet), range(160)))
    assert len(jobs) == 160
    assert server.redis.llen("plan") == waiting + 160
    assert connections(server) - before <= 2 * 16


def test_a_forked_process_makes_its_own(server: LocalFleet) -> None:
    fleet = server.fleet
    enqueue(fleet)
    mine = {client["id"] for client in server.redis.client_list()}
    waiting = server.redis.llen("plan")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for number in range(20):
                fleet.convert(f"db.forked{number}")
            others = {client["id"] for client in redis.Redis.from_url(server.broker_url).client_list()}
            status = 0 if len(others - mine) >= 3 else 2
        finally:
            os._exit(status)
    for _ in range(20):
        enqueue(fleet)  # while the child does
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    enqueue(fleet)
    assert server.redis.llen("plan") == waiting + 41


def test_a_redis_that_was_started_again(server: LocalFleet) -> None:
    fleet = server.fleet
    enqueue(fleet)
    server.processes.kill("redis")
    server.start_redis()
    waiting = server.redis.llen("plan")
    enqueue(fleet)
    assert server.redis.llen("plan") == waiting + 1
