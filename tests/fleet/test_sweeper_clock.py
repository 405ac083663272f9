"""The sweeper's clock in a worker: it ticks as long as the worker lives, whatever dies beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery.events import EventReceiver

from producer.broker.queue import SWEEP
from producer.broker.registry import JobRegistry
from producer.model.job import Request
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants

pytestmark = [pytest.mark.fleet, pytest.mark.redis]

SWEPT = "nothing was lost"


@pytest.fixture
def fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A committer with a quick clock in it."""
    with LocalFleet(tmp_path_factory.mktemp("clock"), **SMALL, sweep_seconds=1) as fleet:
        fleet.start_redis()
        fleet.start_committer("committer", "--beat")
        yield fleet


def test_it_ticks_on_when_every_child_of_the_worker_is_killed(fleet: LocalFleet) -> None:
    """Children that work come again; a clock among them would not."""

    def swept(times: int) -> None:
        log = fleet.processes.log("committer")
        fleet.processes.wait_for("a sweep", lambda: log.read_text().count(SWEPT) >= times, 30)

    swept(2)
    worker = fleet.processes.running["committer"].pid
    children = list(descendants(worker))
    assert children
    for child in children:
        child.kill()
    swept(fleet.processes.log("committer").read_text().count(SWEPT) + 3)


def test_a_worker_with_a_clock_stops_when_asked(fleet: LocalFleet) -> None:
    fleet.answering("committer")
    fleet.processes.terminate("committer")
    assert fleet.processes.ended("committer", 20) == 0


@contextmanager
def events(fleet: LocalFleet) -> Iterator[list[dict[str, Any]]]:
    """The events of tasks that workers send, as Flower receives them."""
    seen: list[dict[str, Any]] = []
    with fleet.celery.connection() as connection:
        receiver = EventReceiver(connection, app=fleet.celery, handlers={"*": seen.append})
        thread = threading.Thread(target=receiver.capture, kwargs={"limit": None, "timeout": None}, daemon=True)
        thread.start()
        fleet.processes.wait_for("events", lambda: seen, 30)  # a worker's heartbeat
        yield seen
        receiver.should_stop = True
        thread.join(10)


def test_a_sweep_sends_events_only_if_it_finds_a_job_or_fails(fleet: LocalFleet) -> None:
    """Otherwise it would add a line to Flower's list each time."""

    def of_sweeps() -> list[dict[str, Any]]:
        swept = {event["uuid"] for event in seen if event.get("name") == SWEEP}
        return [event for event in seen if event.get("uuid") in swept]

    def ended(kind: str) -> dict[str, Any]:
        return fleet.processes.wait_for(kind, lambda: next((e for e in of_sweeps() if e["type"] == kind), None), 30)

    log = fleet.processes.log("committer")
    fleet.answering("committer")
    with events(fleet) as seen:
        quiet = log.read_text().count(SWEPT)
        fleet.processes.wait_for("sweeps", lambda: log.read_text().count(SWEPT) >= quiet + 2, 30)
        assert of_sweeps() == []

        request = Request.new("db.lost")
        JobRegistry(fleet.settings).enqueue(request)
        fleet.redis.delete(f"icefleet:sent:{request.job}")  # its message was sent long ago, and is lost
        found = ended("task-succeeded")
        assert found["result"] == f"'took up {request.job}'"
        assert found["runtime"] >= 0
        [received, started, _] = [event for event in of_sweeps() if event["uuid"] == found["uuid"]]
        assert (received["type"], received["name"]) == ("task-received", SWEEP)
        assert (started["type"], started["hostname"].partition("@")[0]) == ("task-started", "committer")

        fleet.redis.set("icefleet:queue:broken", "no list")
        failed = ended("task-failed")
        fleet.redis.delete("icefleet:queue:broken")
        assert "ResponseError" in failed["exception"]
        assert "WRONGTYPE" in failed["traceback"]
        assert [e["type"] for e in of_sweeps() if e["uuid"] == failed["uuid"]] == [
            "task-received",
            "task-started",
            "task-failed",
        ]
