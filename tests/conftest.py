"""What tests of several folders share."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# Machines of tests are busy with others: how long an example takes says nothing about it.
settings.register_profile("icefleet", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("icefleet")

# Before any test imports them, of whichever folder it is.
pytest.register_assert_rewrite("tests.support.commits", "tests.support.compacting", "tests.support.scenario")

# PyIceberg reads its configuration once, when it is first imported: one catalog for the whole run, made before that.
_FOLDER = Path(tempfile.mkdtemp(prefix="icefleet-tests-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)
os.environ |= {
    "PYICEBERG_CATALOG__DEFAULT__TYPE": "sql",
    "PYICEBERG_CATALOG__DEFAULT__URI": f"sqlite:///{_FOLDER}/catalog.db",
    "PYICEBERG_CATALOG__DEFAULT__WAREHOUSE": f"file://{_FOLDER}/warehouse",
    "ICEFLEET_BROKER_URL": "",
}


#: The ports of the servers of this process's tests, each with the next one: catalogs are configured before anything
#: starts. Ports above 32,000 may be taken by any client.
OBJECT_STORE_PORT = 20_000 + 10 * (os.getpid() % 1_200)
REST_CATALOG_PORT = OBJECT_STORE_PORT + 2
POSTGRES_PORT = OBJECT_STORE_PORT + 4
HIVE_PORT = OBJECT_STORE_PORT + 6
NESSIE_PORT = OBJECT_STORE_PORT + 8
_ENDPOINT = f"http://127.0.0.1:{OBJECT_STORE_PORT}"
_KEYS = {"ACCESS_KEY_ID": "lake-access-key", "SECRET_ACCESS_KEY": "lake-password", "REGION": "us-east-1"}


def _keys_of(service: str) -> dict[str, str]:
    return {f"{service}__{name}": value for name, value in (*_KEYS.items(), ("ENDPOINT", _ENDPOINT))}


_LAKE = {
    "TYPE": "sql",
    "URI": f"sqlite:///{_FOLDER}/lake.db",
    "WAREHOUSE": "s3://lake/warehouse",
    **_keys_of("S3"),
}
_CATALOGS = {
    "LAKE": _LAKE,
    "LAKE-ARROW": _LAKE | {"PY_IO_IMPL": "pyiceberg.io.pyarrow.PyArrowFileIO"},
    "GLUE": {"TYPE": "glue", "WAREHOUSE": "s3://lake/glue", **_keys_of("GLUE"), **_keys_of("S3")},
    "DYNAMODB": {"TYPE": "dynamodb"},
    "REST": {"TYPE": "rest", "URI": f"http://127.0.0.1:{REST_CATALOG_PORT}"},
    "POSTGRES": {
        "TYPE": "sql",
        "URI": f"postgresql+psycopg2://postgres@127.0.0.1:{POSTGRES_PORT}/postgres",
        "WAREHOUSE": f"file://{_FOLDER}/postgres",
    },
    "HIVE": {
        "TYPE": "hive",
        "URI": f"thrift://127.0.0.1:{HIVE_PORT}",
        "WAREHOUSE": f"file://{_FOLDER}/hive",
    },
    "NESSIE": {"TYPE": "rest", "URI": f"http://127.0.0.1:{NESSIE_PORT}/iceberg", **_keys_of("S3")},
}
os.environ |= {
    f"PYICEBERG_CATALOG__{name}__{key}": value for name, keys in _CATALOGS.items() for key, value in keys.items()
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the files that take longest first, and those of fleets, which mostly wait, beside files that compute.

    By itself xdist starts with the files of most tests, and ends with one process waiting for the other, which has
    begun on the one test that takes minutes (`--no-loadscope-reorder` turns that off).
    """
    groups: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[group_of(item.nodeid)].append(item)
        if "whole_fleet" in getattr(item, "fixturenames", ()) and group_of(item.nodeid) != "the whole fleet":
            raise pytest.UsageError(f"add the file of {item.nodeid} to WHOLE_FLEET in tests/conftest.py")
    long = [name for name, tests in groups.items() if any(test.get_closest_marker("timeout") for test in tests)]
    fleets = [name for name in groups if name not in long and (name.startswith("tests/fleet/") or "/" not in name)]
    others = [name for name in groups if name not in long and name not in fleets]
    pairs = zip_longest([*long, *others], fleets)
    items[:] = chain.from_iterable(groups[name] for name in chain.from_iterable(pairs) if name is not None)


#: Files of tests/fleet whose tests share one fleet: to start it takes a minute of processor time.
WHOLE_FLEET = ("compaction", "compaction_races", "fleet", "flower", "task_states")


def group_of(nodeid: str) -> str:
    """Return the name of tests that run in one process, one after another: those of a file, or of the shared fleet."""
    file = nodeid.partition("::")[0]
    return "the whole fleet" if file in {f"tests/fleet/test_{name}.py" for name in WHOLE_FLEET} else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each process whole groups."""
    from xdist.scheduler import LoadFileScheduling

    class LoadGroups(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return LoadGroups(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def default_catalog() -> Path:
    """The folder of the catalog ``default``: ``tasks.testing.local_catalog(folder)`` opens the same one."""
    return _FOLDER


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """One Spark session for all tests of this process; the local engine of the same settings finds it too."""
    from producer.common.settings import Settings
    from tasks.lifecycle.stage import budget_of
    from workers.operations import rewrite
    from workers.runtime import session

    made = session.session(budget_of(Settings(broker_url="")))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(rewrite, "_ALONE_BYTES", 0)  # whoever tests with a session tests its tasks
        yield made
    session.close()


@pytest.fixture(scope="session")
def redis_installed() -> None:
    """Skips what needs Redis where there is none."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server: install Redis 6.2 or newer")
