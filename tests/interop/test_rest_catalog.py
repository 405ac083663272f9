"""Tables of Iceberg's own REST catalog, whose answers are lost, late or wrong at times."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException

from producer import Fleet, Refused, Report, Status
from tasks.testing import StreamTable, read_rows
from tests.conftest import REST_CATALOG_PORT
from tests.interop.bridge import JARS
from tests.support.rest_catalog import RestCatalogServer, running_rest_catalog
from tests.support.unreferenced import unreferenced

_NUMBERS = itertools.count()
#: The request that commits to a table.
COMMIT = r"^POST .*/tables/"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A server that all tests of this file share."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or shutil.which("java")
    if java is None or not (JARS / ".fetched").exists():
        pytest.skip("Iceberg's jars are not fetched: run `make test-interop`, which needs Maven")
    with running_rest_catalog(java, JARS, Path(tmp_path_factory.mktemp("rest")), REST_CATALOG_PORT) as running:
        yield running


@pytest.fixture
def catalog(server: RestCatalogServer, spark: object) -> Catalog:
    """The catalog ``rest``."""
    return load_catalog("rest")


def stream(catalog: Catalog, name: str | None = None, version: int = 2) -> StreamTable:
    """Write a table as a stream does."""
    name = name or f"db.t{next(_NUMBERS)}"
    namespace = tuple(name.split(".")[:-1])
    for depth in range(1, len(namespace) + 1):
        catalog.create_namespace_if_not_exists(namespace[:depth])
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = StreamTable.create(catalog, name, schema, format_version=version)
    for number in range(3):
        table.upsert(pa.table({"id": range(number, number + 20), "name": [f"of {number}"] * 20}), ["id"])
    return table


def rows(table: StreamTable) -> list[tuple[int, str]]:
    found = read_rows(table.table)
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def left_behind(table: StreamTable) -> list[str]:
    """Files that nothing refers to, without the checksums that Hadoop writes beside metadata files."""
    return [path for path in map(str, unreferenced(table.table)) if not path.endswith(".crc")]


def convert(table: StreamTable) -> Report:
    return Fleet().convert(table.identifier, catalog="rest").wait()


@pytest.mark.parametrize(
    "name", ["db.plain", "a.b.c.nested", "db.with space", "db.ünïcödé", "db.plus+equals=", "db.q'uote"]
)
@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_and_a_compaction(catalog: Catalog, name: str, version: int) -> None:
    table = stream(catalog, f"{name}{version}", version)
    expected = rows(table)
    assert convert(table).status is Status.COMMITTED
    assert rows(table) == expected
    report = Fleet().compact(table.identifier, catalog="rest", tier="full").wait()
    assert report.status is Status.COMMITTED, report
    assert rows(table) == expected
    assert left_behind(table) == []


@pytest.mark.parametrize("fault", ["lost", "answer 500", "answer 502", "answer 504", "answer 503", "twice"])
def test_a_commit_whose_answer_is_not_what_happened(server: RestCatalogServer, catalog: Catalog, fault: str) -> None:
    """It happened once. A gateway that repeats it passes on a refusal, since the first one moved the head."""
    table = stream(catalog)
    expected, before = rows(table), len(table.table.snapshots())
    with server.faults(COMMIT, **{fault: 1.0}):
        report = convert(table)
    assert server.counts()[f"fault {fault}"] == 1
    assert report.status is Status.COMMITTED, report
    assert len(table.table.snapshots()) == before + 1
    assert report.snapshot_id == table.table.current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert rows(table) == expected
    assert left_behind(table) == []


@pytest.mark.parametrize("fault", ["reset", "busy", "refuse 500", "refuse 502", "refuse 401", "refuse 419"])
def test_a_commit_that_did_not_happen(server: RestCatalogServer, catalog: Catalog, fault: str) -> None:
    table = stream(catalog)
    expected, before = rows(table), len(table.table.snapshots())
    with server.faults(COMMIT, **{fault: 1.0}):
        report = convert(table)
    assert server.counts()[f"fault {fault}"] == 1
    assert report.status is Status.COMMITTED, report
    assert len(table.table.snapshots()) == before + 1
    assert rows(table) == expected
    assert left_behind(table) == []


def test_a_stream_beside_the_conversion(catalog: Catalog) -> None:
    table = stream(catalog)
    stop, written = Event(), []

    def write() -> None:
        for number in itertools.count(1000):
            if stop.wait(0.2):  # a writer without a pause is faster than any other
                return
            try:
                table.append(pa.table({"id": [number], "name": ["late"]}))
            except CommitFailedException:
                continue
            written.append(number)

    expected = rows(table)
    thread = Thread(target=write)
    thread.start()
    try:
        reports = [convert(table) for _ in range(3)]
    finally:
        stop.set()
        thread.join()
    assert reports[0].status is Status.COMMITTED, reports[0]
    assert rows(table) == sorted([*expected, *((number, "late") for number in written)])


def test_a_catalog_that_does_not_answer_is_not_waited_for_without_end(
    server: RestCatalogServer, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = stream(catalog)
    monkeypatch.setattr("producer.iceberg.pyiceberg_metadata._REST_LIMITS", {"connect": 1000, "read": 2000})
    server.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(Refused, match="Catalog 'rest' does not answer"):
            Fleet().plan(table.identifier, catalog="rest")
    finally:
        server.process.send_signal(signal.SIGCONT)
