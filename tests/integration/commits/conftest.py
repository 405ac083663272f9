"""A catalog that fails on demand, jobs on it with the plain engine, and the small table they convert."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("tests.support.commits", "tests.support.compacting")

from tasks.testing import StreamTable  # noqa: E402
from tests.support.commits import BY_P, SCHEMA, Create, fill  # noqa: E402
from tests.support.faulty import FaultyCatalog, Jobs  # noqa: E402


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FaultyCatalog]:
    """An empty catalog in a folder of its own."""
    catalog = FaultyCatalog(tmp_path)
    yield catalog
    catalog.close()


@pytest.fixture
def jobs(catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Runs jobs on it."""
    return Jobs(catalog, monkeypatch)


@pytest.fixture
def create(catalog: FaultyCatalog) -> Create:
    """Makes the table."""

    def make(version: int = 2, name: str = "db.t", **options: Any) -> StreamTable:
        return StreamTable.create(catalog, name, SCHEMA, **{"spec": BY_P, "format_version": version, **options})

    return make


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def stream(request: pytest.FixtureRequest, create: Create) -> StreamTable:
    """The table in each format version, filled."""
    stream = create(request.param)
    fill(stream)
    return stream
