"""Fixtures: what pip makes of this checkout, and Redis with a catalog."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.fleet.localfleet import LocalFleet
from tests.install.environments import Environment, Warehouse

#: The environments that the tests ask for: each extra alone, as the documentation has it installed.
EXTRAS = ("", "flower", "worker,sqlite", "demo")


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Wheels, and an environment for each extra; gigabytes, which are gone at the end."""
    warehouse = Warehouse(tmp_path_factory.mktemp("install"))
    try:
        warehouse.fill()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(warehouse.environment, EXTRAS))
        yield warehouse
    finally:
        shutil.rmtree(warehouse.root, ignore_errors=True)


@pytest.fixture(scope="session")
def plain(warehouse: Warehouse) -> Environment:
    """For applications that enqueue."""
    return warehouse.environment("")


@pytest.fixture(scope="session")
def flower(warehouse: Warehouse) -> Environment:
    """For Flower alone."""
    return warehouse.environment("flower")


@pytest.fixture(scope="session")
def worker(warehouse: Warehouse) -> Environment:
    """For workers, and catalogs in a file."""
    return warehouse.environment("worker,sqlite")


@pytest.fixture(scope="session")
def demo(warehouse: Warehouse) -> Environment:
    """For the demonstration."""
    return warehouse.environment("demo")


@pytest.fixture(scope="session")
def fleet(redis_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    """Redis and a catalog; the tests add what they have installed."""
    with LocalFleet(tmp_path_factory.mktemp("installed"), cores=1, heap_mb=512, sweep_seconds=2) as fleet:
        fleet.start_redis()
        yield fleet
