"""Tables of other catalogs than SQLite's: what is committed there, and by whom if many commit at once."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from producer import Fleet, Refused, Status
from tasks.testing import StreamTable, read_rows
from tests.conftest import OBJECT_STORE_PORT, POSTGRES_PORT
from tests.support.cut_connection import cutting_proxy
from tests.support.object_store import running_store
from tests.support.postgres import find_postgres, running_postgres
from tests.support.unreferenced import unreferenced

pytestmark = pytest.mark.spark

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def glue(spark: object) -> Iterator[Catalog]:
    """Glue with tables on S3, both of moto's server."""
    with running_store(OBJECT_STORE_PORT, OBJECT_STORE_PORT + 1):
        found = load_catalog("glue")
        found.create_namespace_if_not_exists("db")
        yield found


@pytest.fixture(scope="module")
def postgres(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """A catalog in PostgreSQL."""
    if (programs := find_postgres()) is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(tmp_path_factory.mktemp("postgres"))
    with running_postgres(programs, folder / "server", POSTGRES_PORT) as uri:
        assert uri == os.environ["PYICEBERG_CATALOG__POSTGRES__URI"]
        found = load_catalog("postgres")
        assert isinstance(found, SqlCatalog)
        found.create_namespace_if_not_exists("db")
        yield found
        found.destroy_tables()
        found.close()


@pytest.fixture(params=["glue", "postgres"])
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


@pytest.mark.parametrize("version", [2, 3])
def test_a_conversion_and_a_compaction(catalog: Catalog, version: int) -> None:
    table = stream(catalog, version)
    expected = rows(table)
    assert Fleet().convert(table.identifier, catalog=catalog.name).wait().status is Status.COMMITTED
    assert rows(table) == expected
    assert Fleet().compact(table.identifier, catalog=catalog.name, tier="full").wait().status is Status.COMMITTED
    assert rows(table) == expected


def test_of_many_committers_each_gets_its_turn(postgres: Catalog) -> None:
    """A stream appends from three threads while the table is converted. Moto's Glue ignores versions of tables."""
    catalog = postgres
    table = stream(catalog)
    expected = rows(table)
    numbers = itertools.count(1000)

    def append() -> list[int]:
        own, writer = [], StreamTable(catalog, table.identifier)
        for _ in range(4):
            number = next(numbers)
            try:
                writer.append(pa.table({"id": [number], "name": ["late"]}))
            except CommitFailedException:
                continue
            own.append(number)
        return own

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(append) for _ in range(3)]
        conversion = pool.submit(lambda: Fleet().convert(table.identifier, catalog=catalog.name).wait())
        late = [number for writer in writers for number in writer.result()]
        assert conversion.result().status is Status.COMMITTED
    assert rows(table) == sorted([*expected, *((number, "late") for number in late)])


@pytest.mark.parametrize("cut", ["before", "after"])
@pytest.mark.parametrize("operation", ["convert", "compact"])
def test_a_connection_that_is_lost_in_the_middle_of_a_commit(
    postgres: Catalog, monkeypatch: pytest.MonkeyPatch, cut: str, operation: str
) -> None:
    """Whether the database has the commit is looked for in the table; it is made once, and no file of it is deleted."""
    table = stream(postgres)
    expected, before = rows(table), len(table.table.snapshots())
    uri = postgres.properties["uri"].replace(str(POSTGRES_PORT), str(POSTGRES_PORT + 1))
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, type="sql", uri=uri))
    with cutting_proxy(POSTGRES_PORT + 1, POSTGRES_PORT) as proxy:
        proxy.cut = cut
        report = getattr(Fleet(), operation)(table.identifier, catalog="postgres").wait()
        assert proxy.cuts == 1
    assert report.status is Status.COMMITTED, report
    assert len(table.table.snapshots()) == before + 1
    assert rows(table) == expected
    assert unreferenced(table.table, metadata_files=False) == set()


def test_two_committers_of_one_table(postgres: Catalog) -> None:
    """A conversion and a compaction at once: whichever loses the race is built again, and no row is lost."""
    table = stream(postgres)
    expected = rows(table)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(lambda: Fleet().convert(table.identifier, catalog="postgres").wait()),
            pool.submit(lambda: Fleet().compact(table.identifier, catalog="postgres", tier="full").wait()),
        ]
        ended = [job.result().status for job in jobs]
    assert set(ended) <= {Status.COMMITTED, Status.NOTHING_TO_DO}, ended
    assert rows(table) == expected
    assert unreferenced(table.table, metadata_files=False) == set()


def test_a_catalog_that_pyiceberg_cannot_commit_to_is_refused() -> None:
    with pytest.raises(Refused, match="Catalog 'dynamodb' is one of DynamoDB, to which PyIceberg does not commit"):
        Fleet().plan("db.t", catalog="dynamodb")
