"""Opening of tables: what goes wrong is told apart by what can be done about it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, UnauthorizedError
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table import Table

from producer.common.errors import Corrupt, Reason, Refused
from producer.iceberg.catalog import open_catalog, open_table, storage_hint, table_names
from tasks.testing import StreamTable


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemoryCatalog]:
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}")
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
    yield catalog
    catalog.close()


@pytest.fixture
def stream(catalog: InMemoryCatalog) -> StreamTable:
    return StreamTable.create(catalog, "db.t", pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize("table", ["db.nope", "nope.t", "a.b.c"])
def test_a_table_that_is_not_there(stream: StreamTable, table: str) -> None:
    with pytest.raises(Refused, match=f"^There is no table '{table}' in catalog 'default'.$") as refused:
        open_table("default", table)
    assert refused.value.reason == Reason.UNKNOWN_TABLE


def test_a_catalog_that_is_not_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        Refused, match=r"There is no usable catalog 'nope': configure it in .*PYICEBERG_CATALOG__NOPE__"
    ):
        open_catalog("nope")
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, type="strange"))
    with pytest.raises(Refused, match="There is no usable catalog 'nope'"):
        open_catalog("nope")


@pytest.mark.parametrize(
    ("kind", "module", "options"),
    [
        ("glue", "boto3", {}),
        ("hive", "hive_metastore", {"uri": "thrift://127.0.0.1:1"}),
        ("sql", "sqlalchemy", {"uri": "sqlite://"}),
    ],
)
def test_a_catalog_whose_package_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, kind: str, module: str, options: dict[str, str]
) -> None:
    """It does not come by itself: a job that waited for it would wait in vain."""
    for loaded in [name for name in sys.modules if name.startswith((f"pyiceberg.catalog.{kind}", f"{module}."))]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(
        "producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, **{"type": kind, **options})
    )
    says = rf"^There is no usable catalog 'far': a package .* not installed here \(.*'pyiceberg\[{kind}.*'\)\.$"
    with pytest.raises(Refused, match=says) as refused:
        open_catalog("far")
    assert refused.value.reason == Reason.UNKNOWN_CATALOG


def test_a_catalog_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "producer.iceberg.catalog.load_catalog", lambda name: load_catalog(name, type="rest", uri="http://127.0.0.1:1")
    )
    with pytest.raises(Refused, match=r"^Catalog 'far' does not answer: ") as refused:
        open_catalog("far")
    assert refused.value.reason == Reason.NO_ANSWER


@pytest.mark.parametrize("error", [ForbiddenError("no"), UnauthorizedError("no"), OAuthError("no")])
def test_a_table_that_may_not_be_seen_is_not_one_that_was_dropped(
    catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A job whose table is gone is given up; one whose token has expired must not be."""

    def deny(_: str) -> None:
        raise error

    monkeypatch.setattr(catalog, "load_table", deny)
    with pytest.raises(Refused, match=r"^Catalog 'default' denies access to 'db\.t': no\.$") as refused:
        open_table("default", "db.t")
    assert refused.value.reason == Reason.DENIED


@pytest.mark.parametrize("contents", [b"", b"nothing of the kind", b'{"format-version": 2', b"[1]", b"{}"])
def test_metadata_that_cannot_be_read(stream: StreamTable, contents: bytes) -> None:
    Path(stream.table.metadata_location.removeprefix("file://")).write_bytes(contents)
    with pytest.raises(Corrupt, match=r"^The metadata of db\.t cannot be read: "):
        open_table("default", "db.t")


@pytest.mark.parametrize("value", [None, 5, "x", [5]])
@pytest.mark.parametrize("key", ["properties", "schemas", "partition-specs", "snapshots", "refs"])
def test_damaged_metadata_is_not_called_a_wrong_configuration(stream: StreamTable, key: str, value: object) -> None:
    """PyIceberg raises AttributeError for some of it, as Python does for a class that is not in its module."""
    path = Path(stream.table.metadata_location.removeprefix("file://"))
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with suppress(Corrupt):  # some of it PyIceberg takes for missing
        open_table("default", "db.t")


@pytest.mark.parametrize("version", ["4", "0", "-1"])
def test_a_format_version_of_another_time(stream: StreamTable, version: str) -> None:
    path = Path(stream.table.metadata_location.removeprefix("file://"))
    path.write_text(path.read_text().replace('"format-version":2', f'"format-version":{version}'))
    with pytest.raises(Refused, match=r"^db\.t has a format version that is not supported") as refused:
        open_table("default", "db.t")
    assert refused.value.reason == Reason.FORMAT_VERSION


VARIANTS = [
    ("variant", "v", "variant"),
    ("geometry(srid:4326)", "v", r"geometry\(srid:4326\)"),
    ("geography(OGC:CRS84, spherical)", "v", "geography.*spherical.*"),
    (
        {"type": "struct", "fields": [{"id": 7, "name": "x", "type": "variant", "required": False}]},
        r"v\.x",
        "variant",
    ),
    (
        {"type": "map", "key-id": 7, "key": "string", "value-id": 8, "value": "variant", "value-required": False},
        r"v\.value",
        "variant",
    ),
]


def with_column(stream: StreamTable, type_: Any, **more: Any) -> dict[str, Any]:
    """Add a column of a type that PyIceberg does not load to a table's metadata; the document."""
    path = Path(stream.table.metadata_location.removeprefix("file://"))
    document: dict[str, Any] = json.loads(path.read_text())
    document["schemas"][0]["fields"].append({"id": 6, "name": "v", "type": type_, "required": False, **more})
    path.write_text(json.dumps(document))
    return document


@pytest.mark.parametrize(("type_", "name", "says"), VARIANTS)
def test_a_column_type_that_is_not_read(stream: StreamTable, type_: Any, name: str, says: str) -> None:
    with_column(stream, type_)
    with pytest.raises(Refused, match=rf"^Column {name} of db\.t is of type {says}: tables with such") as refused:
        open_table("default", "db.t")
    assert (refused.value.reason, refused.value.exit_status) == (Reason.COLUMN_TYPE, 2)


@pytest.mark.parametrize(("type_", "name", "says"), VARIANTS)
def test_or_that_a_rest_catalog_gives(
    stream: StreamTable, monkeypatch: pytest.MonkeyPatch, type_: Any, name: str, says: str
) -> None:
    location = stream.table.metadata_location
    answer = json.dumps({"metadata-location": location, "metadata": with_column(stream, type_), "config": {}})

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"defaults": {}, "overrides": {}}' if "/config" in self.path else answer.encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(
            "producer.iceberg.catalog.load_catalog", lambda known: load_catalog(known, type="rest", uri=uri)
        )
        try:
            with pytest.raises(Refused, match=rf"^Column {name} of db\.t is of type {says}: tables with such"):
                open_table("default", "db.t")
        finally:
            server.shutdown()


NANOSECONDS = "2024-01-01T00:00:00.123456789"
INSIDE = {"id": 7, "name": "x", "type": "timestamptz_ns", "required": False, "write-default": f"{NANOSECONDS}+00:00"}


@pytest.mark.parametrize(
    ("type_", "default", "name", "says"),
    [
        ("timestamp_ns", NANOSECONDS, "v", "timestamp_ns"),
        ({"type": "struct", "fields": []}, {}, "v", "struct"),
        ({"type": "list", "element-id": 7, "element": "int", "element-required": False}, [1, 2], "v", "list"),
        ({"type": "struct", "fields": [INSIDE]}, None, r"v\.x", "timestamptz_ns"),
    ],
)
def test_a_default_that_is_not_read(stream: StreamTable, type_: Any, default: Any, name: str, says: str) -> None:
    with_column(stream, type_, **{"initial-default": default})
    with pytest.raises(Refused, match=rf"^Column {name} of db\.t has a default of type {says}: such") as refused:
        open_table("default", "db.t")
    assert (refused.value.reason, refused.value.exit_status) == (Reason.COLUMN_TYPE, 2)


def test_a_type_that_nobody_knows_is_corrupt(stream: StreamTable) -> None:
    with_column(stream, "variante")
    with pytest.raises(Corrupt, match=r"^The metadata of db\.t cannot be read: .*'variante'"):
        open_table("default", "db.t")


def move_metadata(catalog: InMemoryCatalog, location: str) -> None:
    with catalog.engine.begin() as connection:
        connection.exec_driver_sql("update iceberg_tables set metadata_location = ?", (location,))


@pytest.mark.parametrize(
    "name", ["Strange", "nowhere.Strange", "pyiceberg.io.pyarrow.Strange", "pyiceberg.io.fsspec.FsspecFileIO"]
)
def test_a_file_access_that_cannot_be_loaded(
    stream: StreamTable, catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is not the table that is wrong."""
    monkeypatch.delitem(sys.modules, "pyiceberg.io.fsspec", raising=False)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    catalog.properties["py-io-impl"] = name
    says = r"^The files of db\.t cannot be accessed here: set py-io-impl .*, or install the extra .*\.$"
    with pytest.raises(Refused, match=says) as refused:
        open_table("default", "db.t")
    assert refused.value.reason == Reason.CONFIGURATION


def test_a_storage_that_nothing_installed_reads(stream: StreamTable, catalog: InMemoryCatalog) -> None:
    move_metadata(catalog, "strange://lake/m.json")
    says = r"^The files of db\.t cannot be accessed here: .*URI: strange\)"
    with pytest.warns(UserWarning, match="strange"), pytest.raises(Refused, match=says):
        open_table("default", "db.t")


def test_an_object_store_that_does_not_answer(
    stream: StreamTable, catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.endswith("__S3__ENDPOINT")]:
        monkeypatch.delenv(name)
    move_metadata(catalog, "s3://lake/m.json")
    endpoint = "http://127.0.0.1:1"
    secrets = {"s3.access-key-id": "me", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
    catalog.properties.update(secrets | {"s3.endpoint": endpoint})
    says = rf"^The files of db\.t cannot be read: s3://lake/m\.json: {endpoint} does not answer: .* the endpoint, "
    says += r"after 8 attempts in \d+ s\.$"
    with pytest.raises(Refused, match=says):
        open_table("default", "db.t")
    catalog.properties[PY_IO_IMPL] = "pyiceberg.io.pyarrow.PyArrowFileIO"
    with pytest.raises(OSError, match="lake") as error:
        open_table("default", "db.t")
    assert storage_hint(error.value) == ": check that the storage runs, and s3.endpoint (not configured here)"
    monkeypatch.setenv("PYICEBERG_CATALOG__FAR__S3__ENDPOINT", endpoint)
    assert storage_hint(error.value).endswith(f"and s3.endpoint ({endpoint} for catalog 'far')")
    assert storage_hint(OSError("gone")) == ""


def test_metadata_that_is_missing(stream: StreamTable) -> None:
    location = stream.table.metadata_location
    Path(location.removeprefix("file://")).unlink()
    with pytest.raises(Corrupt, match=r"^The metadata file of db\.t is missing: ") as corrupt:
        open_table("default", "db.t")
    assert location.removeprefix("file://") in str(corrupt.value)


def test_metadata_that_a_commit_has_replaced_since(
    stream: StreamTable, catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers may delete old metadata files, between the catalog's answer and the look at the file too."""
    load, aside = catalog.load_table, Path(stream.table.metadata_location.removeprefix("file://"))
    contents = aside.read_bytes()
    aside.unlink()

    def late(identifier: str) -> Table:
        try:
            return load(identifier)
        finally:
            aside.write_bytes(contents)

    monkeypatch.setattr(catalog, "load_table", late)
    assert open_table("default", "db.t").name() == ("db", "t")


def test_other_errors_may_pass_and_come_through(catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: str) -> None:
        raise ConnectionError("try later")

    monkeypatch.setattr(catalog, "load_table", away)
    with pytest.raises(ConnectionError):
        open_table("default", "db.t")


def test_tables_of_nested_namespaces_are_listed(catalog: InMemoryCatalog) -> None:
    for name in ("db.t", "db.u", "lake.db.t"):
        StreamTable.create(catalog, name, pa.schema([("id", pa.int64())]))
    assert sorted(table_names(catalog)) == ["db.t", "db.u", "lake.db.t"]
