"""The sweeper's clock in a worker: it ticks as long as the worker lives, whatever dies beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.fleet.processes import descendants

pytestmark = [pytest.mark.fleet, pytest.mark.redis]

SWEPT = "nothing was lost"


@pytest.fixture
def fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A committer with a quick clock in it."""
    fleet = LocalFleet(tmp_path_factory.mktemp("clock"), **SMALL, sweep_seconds=1)
    try:
        fleet.start_redis()
        fleet.start_committer("committer", "--beat")
        yield fleet
    finally:
        fleet.stop()


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


def test_a_worker_with_a_clock_stops_when_told(fleet: LocalFleet) -> None:
    fleet.answering("committer")
    fleet.processes.terminate("committer")
    assert fleet.processes.ended("committer", 20) == 0
