"""REST catalogs that vend credentials, check tokens, and refuse what a catalog may refuse."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from producer import Fleet, Refused, Report, Settings, Status
from producer.cli.check import run_checks
from producer.cli.main import main
from producer.common.errors import Reason
from producer.iceberg.catalog import open_catalog, open_table
from tasks.messaging.sweeper import current_jobs
from tasks.testing import StreamTable, read_rows
from tests.conftest import OBJECT_STORE_PORT, REST_CATALOG_PORT
from tests.fleet.conftest import SMALL
from tests.fleet.localfleet import LocalFleet
from tests.interop.bridge import JARS
from tests.support.object_store import BUCKET, ObjectStore, running_store
from tests.support.rest_catalog import running_rest_catalog
from tests.support.rest_front import RestFront, running_front

_NUMBERS = itertools.count()
#: Stands in all that is vended, and must be found nowhere.
WORD = "vended-"
COMMIT = re.compile(r"POST .*/tables/")


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Iceberg's own server; the port of the catalog ``rest`` is left to the front."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or shutil.which("java")
    if java is None or not (JARS / ".fetched").exists():
        pytest.skip("Iceberg's jars are not fetched: run `make test-interop`, which needs Maven")
    with running_rest_catalog(java, JARS, Path(tmp_path_factory.mktemp("rest")), REST_CATALOG_PORT) as running:
        yield running.uri


@pytest.fixture
def front(backend: str, spark: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestFront]:
    """A front that is the catalog ``rest`` for this process."""
    with running_front(backend) as running:
        monkeypatch.setattr(
            "producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, type="rest", uri=running.uri)
        )
        yield running


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with running_store(OBJECT_STORE_PORT, OBJECT_STORE_PORT + 1) as running:
        yield running


def stream(catalog: Catalog, tmp_path: Path | None = None, name: str | None = None) -> StreamTable:
    """Write a table as a stream does; with a folder its data and the records of jobs lie on S3, metadata does there."""
    number = next(_NUMBERS)
    where = {} if tmp_path is None else {"location": f"s3://{BUCKET}/t{number}"}
    properties = {} if tmp_path is None else {"write.metadata.path": f"file://{tmp_path}/metadata"}
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = StreamTable.create(catalog, name or f"front.t{number}", schema, properties=properties, **where)
    for batch in range(3):
        table.upsert(pa.table({"id": range(batch, batch + 20), "name": [f"of {batch}"] * 20}), ["id"])
    return table


def new_table(tmp_path: Path | None = None) -> StreamTable:
    """Return a table of the catalog as Icefleet opens it."""
    catalog = open_catalog("rest")
    catalog.create_namespace_if_not_exists("front")
    return stream(catalog, tmp_path)


def rows(table: StreamTable) -> list[tuple[int, str]]:
    found = read_rows(table.table)
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def convert(table: StreamTable) -> Report:
    return Fleet().convert(table.identifier, catalog="rest").wait()


class Vending:
    """Credentials that the store refuses for data files from the start: others are vended when it has refused one."""

    def __init__(self, store: ObjectStore) -> None:
        self.store, self.refused = store, 0

    def __call__(self) -> Mapping[str, Any]:
        self.refused += self.store.counts().get("fault refuse 403", 0)
        return vended(self.store, 2 if self.refused else 1)


def vended(store: ObjectStore, number: int) -> Mapping[str, Any]:
    """Credentials for three places, the longest prefix of which is that of the tables on S3."""

    def keys(name: str) -> dict[str, str]:
        return {
            "s3.access-key-id": f"{WORD}key-{name}",
            "s3.secret-access-key": f"{WORD}secret-{name}",
            "s3.session-token": f"{WORD}session-{name}",
        }

    places = {"s3://": "wrong", "file:": "other", f"s3://{BUCKET}/": str(number)}
    return {
        "config": {"s3.endpoint": store.endpoint, "s3.region": "us-east-1"},
        "storage-credentials": [{"prefix": prefix, "config": keys(name)} for prefix, name in places.items()],
    }


#: Requests for data files with the first token; those with the token of another place.
EXPIRED = (
    rf"^\w+ [^ ]*/data/[^ ]*\.parquet [\s\S]*(?i:x-amz-security-token): {WORD}session-1|{WORD}session-(wrong|other)"
)


def test_credentials_that_expire_in_the_middle_of_a_unit(front: RestFront, store: ObjectStore, tmp_path: Path) -> None:
    front.vend = lambda: vended(store, 2)
    table = new_table(tmp_path)
    expected = rows(table)
    front.vend = vending = Vending(store)
    store.counts()
    with store.faults(only=EXPIRED, **{"refuse 403": 1.0}):
        report = convert(table)
    assert report.status is Status.COMMITTED, report
    assert vending.refused + store.counts().get("fault refuse 403", 0) >= 1
    front.vend = lambda: vended(store, 2)
    assert rows(table) == expected


class VendingFleet(LocalFleet):
    """Workers that know the catalog ``rest`` by its address alone."""

    def __init__(self, root: Path, uri: str) -> None:
        super().__init__(root, **SMALL)
        self.environment.update({"PYICEBERG_CATALOG__REST__TYPE": "rest", "PYICEBERG_CATALOG__REST__URI": uri})

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield what can be read of the fleet: arguments and environments of its processes, and all of its files."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if Path(process.cwd()).is_relative_to(self.root):
                    yield f"arguments of {process.name()}", " ".join(process.cmdline())
                    yield f"environment of {process.name()}", str(process.environ())
        for path in self.root.rglob("*"):
            with suppress(OSError):
                if path.is_file():
                    yield str(path), path.read_text(errors="replace")


def test_vended_credentials_are_nowhere_to_be_read(
    redis_installed: None, front: RestFront, store: ObjectStore, tmp_path: Path
) -> None:
    """A fleet converts and compacts while they expire; the JVMs, Python workers and records are looked at meanwhile."""
    front.vend = lambda: vended(store, 2)
    table = new_table(tmp_path)
    expected = rows(table)
    front.vend = vending = Vending(store)
    seen, leaks, done = set(), [], threading.Event()

    def look() -> None:
        while not done.wait(0.2):
            found = [*fleet.texts()]
            for key in store.keys(table.table.metadata.location.removeprefix(f"s3://{BUCKET}/")):
                if "_icefleet" in key:
                    with suppress(OSError):
                        found.append((key, store.read(key).decode(errors="replace")))
            seen.update(re.sub(r".*/|\d+", "", name) for name, _ in found)
            leaks.extend((name, text[max(0, text.find(WORD) - 200) :][:400]) for name, text in found if WORD in text)

    with VendingFleet(tmp_path / "fleet", front.uri) as fleet:
        fleet.start_redis()
        fleet.start_committer("committer", "--log-level", "DEBUG")
        fleet.start_worker("red", "--queues", "convert,compact", "--log-level", "DEBUG")
        fleet.answering("red", "committer")
        thread = threading.Thread(target=look)
        with store.faults(only=EXPIRED, **{"refuse 403": 1.0}):
            thread.start()
            try:
                reports = [fleet.fleet.convert(table.identifier, catalog="rest").wait(150)]
                reports.append(fleet.fleet.compact(table.identifier, catalog="rest", tier="full").wait(150))
            finally:
                done.set()
                thread.join()
        logs = [fleet.processes.log(name).read_text() for name in ("red", "committer")]
    assert [report.status for report in reports] == [Status.COMMITTED] * 2, reports
    assert vending.refused + store.counts().get("fault refuse 403", 0) >= 1
    assert leaks == []
    assert all(WORD not in text for text in (*logs, *(report.model_dump_json() for report in reports)))
    assert {"environment of java", "arguments of java"} <= seen, seen
    assert any("staged" in name for name in seen), seen
    front.vend = lambda: vended(store, 2)
    assert rows(table) == expected


def test_a_token_that_expires_is_renewed_in_the_middle_of_a_job(
    front: RestFront, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is good for three requests; the committer sends one commit for all that."""
    numbers, uses = itertools.count(), [0]

    def issue() -> str:
        uses[0], front.tokens = 0, {f"token-{next(numbers)}"}
        return next(iter(front.tokens))

    table = new_table()
    expected = rows(table)
    front.issued = issue
    answer = front.answer

    def wear_out(*arguments: Any) -> Any:
        uses[0] += 1
        if uses[0] > 3:
            front.tokens = {"none"}
        return answer(*arguments)

    monkeypatch.setattr(front, "answer", wear_out)
    monkeypatch.setattr(
        "producer.iceberg.catalog.load_catalog",
        lambda name: load_catalog(name, type="rest", uri=front.uri, credential="client:the-secret"),
    )
    report = convert(table)
    assert report.status is Status.COMMITTED, report
    front.tokens = None
    assert rows(table) == expected


def test_a_token_that_is_refused_for_good(front: RestFront, monkeypatch: pytest.MonkeyPatch) -> None:
    table = new_table()
    front.tokens = set()
    monkeypatch.setattr(
        "producer.iceberg.catalog.load_catalog",
        lambda name: load_catalog(name, type="rest", uri=front.uri, token="the-old-token"),
    )
    done = CliRunner().invoke(main, ["plan", table.identifier, "--catalog", "rest"])
    assert done.exit_code == 2
    assert re.search(r"Catalog 'rest' denies access: NotAuthorizedException: The token has\s+expired\.", done.output)
    assert "the-old-token" not in done.output


def test_nobody_below_the_committer_repeats_a_commit(front: RestFront) -> None:
    table = new_table()
    front.refused[COMMIT.pattern] = 409
    front.counts.clear()
    report = Fleet(Settings(broker_url="", commit_attempts=2)).convert(table.identifier, catalog="rest").wait()
    assert report.status is Status.FAILED, report
    assert "Other writers were faster 2 times" in str(report.reason)
    assert sum(count for line, count in front.counts.items() if COMMIT.match(line)) == 2


def test_a_catalog_that_refuses_listing(front: RestFront, caplog: pytest.LogCaptureFixture) -> None:
    """Named tables are worked on, the sweeper looks at those of known jobs, and commands say what is missing."""
    table = new_table()
    front.refused[r"GET .*/namespaces$"] = 403
    assert convert(table).status is Status.COMMITTED
    settings = Settings(broker_url="", catalogs="rest")
    job = f"convert:rest:{table.identifier}:20260101T000000-00000000"
    loaded = f"GET /v1/namespaces/front/tables/{table.identifier.partition('.')[2]}"
    front.counts.clear()
    assert list(current_jobs(settings, [job])) == []
    assert front.counts[loaded] == 1
    sentence = "Catalog 'rest' denies the right to list its tables: grant it, or name a table"
    assert [sentence in record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [True]
    with pytest.raises(Refused, match=sentence) as refused:
        Fleet(settings).jobs(catalog="rest")
    assert refused.value.reason is Reason.DENIED
    checks = {check.name: check for check in run_checks(settings, "rest", table.identifier)}
    assert checks["catalog"].passed
    assert "does not let its namespaces be listed" in checks["catalog"].detail
    assert checks["storage: delete"].passed


def test_a_namespace_that_is_not_listed_hides_no_other(front: RestFront) -> None:
    table = new_table()
    open_catalog("rest").create_namespace_if_not_exists("hidden")
    front.refused[r"GET .*/namespaces/hidden/tables$"] = 403
    assert any(job.name.table == table.identifier for job in Fleet(_local()).jobs(catalog="rest")) is False
    assert convert(table).status is Status.COMMITTED
    assert any(job.name.table == table.identifier for job in Fleet(_local()).jobs(catalog="rest"))


def _local() -> Settings:
    return Settings(broker_url="")


def test_remote_signing_is_refused(front: RestFront) -> None:
    table = new_table()
    front.vend = lambda: {"config": {"s3.remote-signing-enabled": "true", "s3.signer.uri": front.uri}}
    with pytest.raises(Refused, match="gives no keys for its storage, and wants to sign each request") as refused:
        open_table("rest", table.identifier)
    assert refused.value.exit_status == 2


def test_a_view_is_refused(front: RestFront) -> None:
    table = new_table()
    catalog = load_catalog("rest", type="rest", uri=front.uri)
    version = ViewVersion(
        version_id=1,
        schema_id=0,
        timestamp_ms=1,
        summary={},
        representations=[SQLViewRepresentation(type="sql", sql=f"select id from {table.identifier}", dialect="spark")],
        default_namespace=["front"],
    )
    name = f"front.v{next(_NUMBERS)}"
    catalog.create_view(name, Schema(NestedField(1, "id", LongType())), version)
    with pytest.raises(Refused, match=rf"^'{name}' in catalog 'rest' is a view: name the table that it reads\.$"):
        open_table("rest", name)


@pytest.mark.parametrize("change", ["renamed", "replaced"])
def test_a_table_that_is_another_one_at_the_commit(front: RestFront, change: str) -> None:
    """Its name is given to another table meanwhile: nothing is committed to that one."""
    table = new_table()
    catalog = open_catalog("rest")
    changed = []

    def swap(done: int, of: int, detail: str) -> None:
        if detail == "committing" and not changed:
            if change == "renamed":
                catalog.rename_table(table.identifier, f"{table.identifier}_old")
            else:
                catalog.drop_table(table.identifier)
            changed.append(stream(catalog, name=table.identifier))

    report = Fleet().convert(table.identifier, catalog="rest", on_progress=swap).wait()
    assert report.status is Status.FAILED, report
    assert "was replaced by another table while the job ran: nothing was committed" in str(report.reason)
    assert len(changed[0].table.snapshots()) == 3
    assert len(changed[0].delete_files()) == 3


def test_a_warehouse_that_is_unknown(front: RestFront) -> None:
    front.refused["GET .*/config$"] = 404
    with pytest.raises(Refused, match=r"^Catalog 'rest' refuses its configuration, such as uri or warehouse: ") as told:
        open_table("rest", "front.t")
    assert told.value.exit_status == 2


def test_a_token_that_is_refused_while_a_job_runs(front: RestFront, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is committed or deleted, and `icefleet resume` goes on when there is another token."""
    table = new_table()
    expected, before = rows(table), len(table.table.snapshots())
    front.refused[COMMIT.pattern] = 401
    monkeypatch.setenv("ICEFLEET_COMMIT_ATTEMPTS", "1")
    done = CliRunner().invoke(main, ["convert", table.identifier, "--catalog", "rest"])
    assert done.exit_code == 1, done.output
    assert "Not allowed" in done.output
    job = re.search(r"convert:rest:\S+-[0-9a-f]{8}", done.output.replace("\n", " "))
    assert job is not None, done.output
    assert len(table.table.snapshots()) == before
    del front.refused[COMMIT.pattern]
    done = CliRunner().invoke(main, ["resume", job[0]])
    assert done.exit_code == 0, done.output
    assert len(table.table.snapshots()) == before + 1
    assert rows(table) == expected
