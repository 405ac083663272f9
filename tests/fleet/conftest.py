"""Fixtures: Redis alone, and a fleet that is shared by all tests that leave it whole."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

pytest.register_assert_rewrite("tests.fleet.battered", "tests.fleet.writers")

from tests.fleet.battered import ATTEMPTS  # noqa: E402
from tests.fleet.converted import Converted  # noqa: E402
from tests.fleet.localfleet import LocalFleet  # noqa: E402

#: One core and a small heap for each worker, and units of one MB, so that small tables have many of them.
SMALL = {"cores": 1, "heap_mb": 512, "unit_mb": 1}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the processes said when a test fails."""
    report = yield
    if report.failed:
        for fixture in getattr(item, "funcargs", {}).values():
            if isinstance(fixture, LocalFleet):
                report.sections.append(("logs of the fleet", fixture.processes.logs()))
                break
    return report


@pytest.fixture(scope="module")
def server(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Redis alone."""
    with LocalFleet(tmp_path_factory.mktemp("redis")) as fleet:
        fleet.start_redis()
        yield fleet


@pytest.fixture(scope="session")
def whole_fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Redis, Flower, two workers and a committer, each in processes of their own."""
    with LocalFleet(tmp_path_factory.mktemp("fleet"), **SMALL) as fleet:
        fleet.start_redis()
        fleet.start_flower()
        fleet.start_committer()
        for name in ("red", "blue"):
            fleet.start_worker(name)
        fleet.answering("red", "blue", "committer")
        yield fleet


@pytest.fixture
def fleet(whole_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    """The shared fleet, known to this process."""
    whole_fleet.attach(monkeypatch)
    return whole_fleet


@pytest.fixture(scope="module")
def battered(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """A fleet that each test may leave in pieces; its sweeper is quick."""
    quick = {"sweep_seconds": 1, "lease_seconds": 6}
    with LocalFleet(tmp_path_factory.mktemp("chaos"), spark=False, **SMALL, **quick, max_attempts=ATTEMPTS) as fleet:
        fleet.start_redis()
        yield fleet


@pytest.fixture(scope="session")
def converted(whole_fleet: LocalFleet) -> Converted:
    """A table of many units, converted by the shared fleet for another application."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        whole_fleet.attach(monkeypatch)
        return Converted.by(whole_fleet)
