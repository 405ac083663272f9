"""Tables on an S3 server, as users have them: right, with few requests, and nothing left behind."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from celery.exceptions import SoftTimeLimitExceeded
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.manifest import DataFileContent

from producer import Fleet, Report, Settings, Status
from producer.cli.check import run_checks
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.model.job import Failure, Request
from producer.model.staged import Staged
from producer.storage.metadata_cache import METADATA_CACHE
from producer.storage.object_store_io import ObjectStoreFileIO
from producer.storage.requests import COUNTS
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tasks.messaging.retry_policy import TryAgain
from tasks.testing import StreamTable, read_rows
from tests.conftest import OBJECT_STORE_PORT
from tests.support.object_store import BUCKET, ObjectStore, running_store

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()
CHECKPOINTS, ROWS = 6, 500


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    """A server that all tests of this file share."""
    with running_store(OBJECT_STORE_PORT, OBJECT_STORE_PORT + 1) as running:
        yield running


@pytest.fixture(scope="module")
def catalog(store: ObjectStore, spark: object) -> Catalog:
    """The catalog ``lake`` with tables on that server."""
    found = load_catalog("lake")
    found.create_namespace_if_not_exists("db")
    return found


def stream(catalog: Catalog, version: int = 2, folder: str | None = None, **properties: str) -> StreamTable:
    """Write a table as a stream does: each checkpoint replaces rows of those before it."""
    name = f"t{next(_NUMBERS)}"
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = StreamTable.create(
        catalog,
        f"db.{name}",
        schema,
        format_version=version,
        location=f"s3://{BUCKET}/{folder or name}",
        properties=properties,
    )
    random = np.random.default_rng(7)
    for number in range(CHECKPOINTS):
        ids = random.choice(2 * ROWS, ROWS, replace=False)
        table.upsert(pa.table({"id": ids, "name": [f"{id_} of {number}" for id_ in ids]}), ["id"])
    return table


def run(table: StreamTable, operation: str) -> Report:
    report = getattr(Fleet(), operation)(table.identifier, catalog="lake").wait()
    assert report.status is Status.COMMITTED, report
    return report


def rows(table: StreamTable) -> list[tuple[int, str]]:
    found = read_rows(table.table)
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


@pytest.mark.parametrize("version", [2, 3])
def test_a_job_leaves_the_rows_and_nothing_but_the_tables_files(
    store: ObjectStore, catalog: Catalog, version: int
) -> None:
    table = stream(catalog, version)
    expected = rows(table)
    run(table, "convert")
    assert not any(file.content == DataFileContent.EQUALITY_DELETES for file in table.files())
    assert rows(table) == expected
    run(table, "compact")
    assert rows(table) == expected
    folder = table.table.location().removeprefix(f"s3://{BUCKET}/")
    keys = store.keys(folder)
    assert not [key for key in keys if "_icefleet" in key or key.endswith("/")]
    assert not [name for name in store.folders(folder) if "_icefleet" in name]
    assert {key for key in keys if "/data/" in key} == data_keys(table)


def data_keys(table: StreamTable) -> set[str]:
    """The keys of all data and delete files of all snapshots."""
    loaded = table.table
    files = (
        file
        for snapshot in loaded.snapshots()
        for file in read_manifests(loaded.io, read_manifest_list(loaded.io, snapshot))
    )
    return {file.path.removeprefix(f"s3://{BUCKET}/") for file in files}


#: Requests of a job of one unit, beside those that read data and delete files: GET for the table's metadata, each of
#: its manifests and the job's records, PUT for records, metadata and what is written.
CONVERTED = {"GET": 27, "LIST": 9, "HEAD": 1, "DELETE many": 4}
COMPACTED = {"GET": 25, "LIST": 9, "HEAD": 1, "DELETE many": 4, "PUT": 18}


@pytest.mark.parametrize("version", [2, 3])
def test_each_file_is_one_request(store: ObjectStore, catalog: Catalog, version: int) -> None:
    table = stream(catalog, version)
    replaced = CHECKPOINTS - 1  # nothing deletes rows of the last one
    written = replaced if version == 2 else 1
    METADATA_CACHE.reset()
    store.counts()
    run(table, "convert")
    check_requests(store, {**CONVERTED, "GET range": 2 * replaced, "PUT": 15 + written})
    METADATA_CACHE.reset()
    run(table, "compact")
    check_requests(store, {**COMPACTED, "GET range": CHECKPOINTS + written})


def check_requests(store: ObjectStore, most: dict[str, int]) -> None:
    """Check that there were no more requests of each kind since the last time."""
    found = {kind: count for kind, count in store.counts().items() if not kind.startswith("bytes")}
    assert {kind: count for kind, count in found.items() if count > most.get(kind, 0)} == {}, found


@pytest.mark.parametrize("folder", ["a b/c+d=e/%20f", "ünï/cödé/日本", "x'y&z/(1)"])
def test_locations_with_every_character(catalog: Catalog, folder: str) -> None:
    table = stream(catalog, folder=f"{folder}/{next(_NUMBERS)}")
    expected = rows(table)
    run(table, "convert")
    run(table, "compact")
    assert rows(table) == expected


def test_the_layout_for_object_stores_and_another_bucket_of_the_same_server(
    store: ObjectStore, catalog: Catalog
) -> None:
    properties = {"write.object-storage.enabled": "true", "write.data.path": f"s3a://{BUCKET}/elsewhere/{id(store)}"}
    table = stream(catalog, **properties)
    expected = rows(table)
    run(table, "convert")
    run(table, "compact")
    assert rows(table) == expected
    assert all(file.path.startswith("s3a://") for file in table.files())


def test_what_check_tries_of_a_store(store: ObjectStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = stream(catalog)
    checks = {check.name: check for check in run_checks(Settings(broker_url=""), "lake", table.identifier)}
    assert [check for check in checks.values() if check.passed is False] == []
    assert checks["storage: create once"].detail == "a file is created once"
    assert not [key for key in store.keys(table.identifier.partition(".")[2]) if "_icefleet" in key]
    with store.faults(**{"refuse 403": 1.0}):
        checks = {check.name: check for check in run_checks(Settings(broker_url=""), "lake", table.identifier)}
    assert "denies access" in checks["table"].detail
    assert checks["table"].passed is False


def test_requests_that_fail_are_repeated(store: ObjectStore, catalog: Catalog) -> None:
    table = stream(catalog)
    expected = rows(table)
    with store.faults(busy=0.05, reset=0.05, cut=0.05, lost=0.05):
        run(table, "convert")
    counts = store.counts()
    assert sum(count for kind, count in counts.items() if kind.startswith("fault")) > 3
    assert rows(table) == expected


def test_the_report_counts_requests_and_repetitions(store: ObjectStore, catalog: Catalog) -> None:
    table = stream(catalog)
    store.counts()
    with store.faults(only=f"/{table.identifier.partition('.')[2]}/(data|_icefleet)/", busy=1.0, times=7):
        storage = run(table, "compact").storage
    made = sum(count for kind, count in store.counts().items() if not kind.startswith(("bytes", "fault")))
    assert storage is not None
    assert storage.repeated == 7
    assert storage.warning == f"the storage was busy: 7 of {storage.requests} requests were repeated"
    assert storage.requests == sum(storage.by_kind.values())
    # Whoever asks for the job reads the table's metadata before it begins.
    assert made - 3 <= storage.requests <= made


def test_a_store_that_stays_busy_costs_no_attempt(
    store: ObjectStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit is tried again as long as a job waits for storage, and nothing is left of what was no attempt."""
    monkeypatch.setattr("producer.storage.requests._ATTEMPTS", 2)
    settings, table = Settings(broker_url=""), stream(catalog)
    expected, request = rows(table), Request.new(table.identifier, catalog="lake")
    step = begin(request, settings)
    assert isinstance(step, Stage)
    context = JobContext.open(request.job, step.plan.location)
    for _ in range(settings.max_attempts + 1):
        with (
            store.faults(only=f"/{table.identifier.partition('.')[2]}/data/", busy=1.0),
            pytest.raises(TryAgain, match=r"^s3://lake/\S+: .+, after 2 attempts in 0 s$"),
        ):
            stage(context, step.plan, 0, settings, lambda done, files: None)
        assert context.store.at(step.plan).attempts(0) == []
    assert isinstance(stage(context, step.plan, 0, settings, lambda done, files: None), Staged)
    ended = advance(context, settings)
    assert isinstance(ended, Ended)
    assert ended.report is not None
    assert ended.report.status is Status.COMMITTED
    assert rows(table) == expected
    keys = store.keys(table.identifier.partition(".")[2])
    assert {key for key in keys if "/data/" in key} == data_keys(table)


def test_requests_of_the_processes_of_a_session_are_counted(store: ObjectStore, tmp_path: Path) -> None:
    path, io = f"s3://{BUCKET}/counted/1", ObjectStoreFileIO(store.properties)
    assert io.create_new(path, b"1")
    program = "import pickle, sys; pickle.load(sys.stdin.buffer).new_input(sys.argv[1]).open()"
    COUNTS.take()
    with COUNTS.shared(tmp_path):
        io.new_input(path).open()
        subprocess.run([sys.executable, "-c", program, path], input=pickle.dumps(io), check=True)
    assert COUNTS.take() == {"GET": 2}


@pytest.mark.parametrize("end", [SoftTimeLimitExceeded, KeyboardInterrupt])
def test_a_unit_whose_requests_are_repeated_ends_at_once(
    end: type[BaseException], store: ObjectStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over, or somebody interrupts it: it deletes what it wrote, and no thread goes on."""
    monkeypatch.setattr("producer.storage.requests._ATTEMPTS", 1000)
    settings, table = Settings(broker_url=""), stream(catalog)
    request = Request.new(table.identifier, catalog="lake")
    step = begin(request, settings)
    assert isinstance(step, Stage)
    context = JobContext.open(request.job, step.plan.location)
    ended_at = 0.0

    def interrupt(*_: object) -> None:
        nonlocal ended_at
        ended_at = time.monotonic()
        raise end

    before = signal.signal(signal.SIGUSR2, interrupt)
    timer = threading.Timer(3, os.kill, [os.getpid(), signal.SIGUSR2])
    try:
        with store.faults(only=f"/{table.identifier.partition('.')[2]}/data/", busy=1.0):
            timer.start()
            try:
                outcome = stage(context, step.plan, 0, settings, lambda done, files: None)
            except KeyboardInterrupt:
                outcome = None
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert time.monotonic() - ended_at < 10  # the work is waited for three times as long
    if end is SoftTimeLimitExceeded:
        assert isinstance(outcome, Failure)
        assert "longer than ICEFLEET_UNIT_SECONDS" in outcome.reason
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("icefleet ")]


def test_of_many_who_create_a_file_one_does(store: ObjectStore) -> None:
    io = ObjectStoreFileIO(store.properties)
    for number in range(5):
        path = f"s3://{BUCKET}/claims/{number}"
        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(lambda who, path=path: io.create_new(path, b"%d" % who), range(16)))
        assert won.count(True) == 1
        assert bytes(io.new_input(path).open(seekable=False).read()) == b"%d" % won.index(True)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials may be renewed at once; they were loaded a moment ago."""
    monkeypatch.setattr("producer.storage.access._PAUSE", 0.0)


def renewing(store: ObjectStore, **properties: str) -> tuple[ObjectStoreFileIO, list[int]]:
    """Access with a key that the store denies, and the renewals so far: others have a key that it takes."""
    renewals: list[int] = []

    def renew() -> ObjectStoreFileIO:
        renewals.append(1)
        return ObjectStoreFileIO({**store.properties, "s3.access-key-id": "fresh"})

    io = ObjectStoreFileIO({**store.properties, "s3.access-key-id": "expired", **properties})
    io.renew_with(renew)
    return io, renewals


def test_credentials_that_expire_meanwhile_are_renewed(store: ObjectStore, impatient: None) -> None:
    path = f"s3://{BUCKET}/renewed/{next(_NUMBERS)}"
    io, renewals = renewing(store)
    store.counts()
    with store.faults(only="Credential=expired/", **{"refuse 403": 1.0}):
        assert io.create_new(path, b"1")
        assert bytes(io.new_input(path).open(seekable=False).read()) == b"1"
    assert (renewals, store.counts()["fault refuse 403"]) == ([1], 1)


def test_requests_that_are_denied_at_once_all_go_on_with_the_new_credentials(store: ObjectStore) -> None:
    io, renewals = renewing(store)
    paths = [f"s3://{BUCKET}/renewed/{next(_NUMBERS)}" for _ in range(16)]
    with store.faults(only="Credential=expired/", **{"refuse 403": 1.0}), ThreadPoolExecutor(16) as pool:
        assert all(pool.map(lambda path: io.create_new(path, b"1"), paths))
    assert renewals == [1]


def test_credentials_that_cannot_be_renewed_early_are_used_on(store: ObjectStore) -> None:
    def fail() -> ObjectStoreFileIO:
        raise ConnectionError("the catalog is away")

    soon = str(int((time.time() + 30) * 1000))
    io = ObjectStoreFileIO({**store.properties, "s3.session-token-expires-at-ms": soon})
    io.renew_with(fail)
    assert io.create_new(f"s3://{BUCKET}/renewed/{next(_NUMBERS)}", b"1")


def test_credentials_that_say_when_they_expire_are_renewed_before(store: ObjectStore, impatient: None) -> None:
    soon = str(int((time.time() + 30) * 1000))
    io, renewals = renewing(store, **{"s3.session-token-expires-at-ms": soon})
    store.counts()
    with store.faults(only="Credential=expired/", **{"refuse 403": 1.0}):
        assert io.create_new(f"s3://{BUCKET}/renewed/{next(_NUMBERS)}", b"1")
    assert renewals == [1]
    assert "fault refuse 403" not in store.counts()


def test_access_that_stays_denied_says_so(store: ObjectStore, impatient: None) -> None:
    io, renewals = renewing(store)
    with store.faults(**{"refuse 403": 1.0}), pytest.raises(PermissionError, match="the store denies access"):
        io.new_input(f"s3://{BUCKET}/denied").open()
    assert renewals == [1]


def test_access_through_pyicebergs_own_implementation_stays_possible(store: ObjectStore, catalog: Catalog) -> None:
    table = stream(catalog)
    expected = rows(table)
    other = load_catalog("lake-arrow")
    other.create_namespace_if_not_exists("db")
    other.register_table(f"db.{table.identifier.rpartition('.')[2]}_arrow", table.table.metadata_location)
    name = f"{table.identifier}_arrow"
    report = Fleet().convert(name, catalog="lake-arrow").wait()
    assert report.status is Status.COMMITTED, report
    found = read_rows(other.load_table(name))
    assert sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
