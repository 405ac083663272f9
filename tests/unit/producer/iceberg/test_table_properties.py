"""Table properties that cannot be read are refused at planning, by name and value, and nothing is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

import producer
import tasks
import workers
from producer.common.errors import Reason, Refused
from producer.model.job import Operation, Request
from producer.planning.planner import check_request
from tasks.testing import StreamTable
from workers.arrow.fields import stored_columns
from workers.arrow.schema import arrow_schema
from workers.formats.metrics import modes_of
from workers.formats.parquet.write_properties import WriteProperties, compression

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "s", StringType(), required=False))
BOTH = (Operation.CONVERT, Operation.COMPACT)
COMPACT = (Operation.COMPACT,)
FILTER = "write.parquet.bloom-filter-"
#: Values that cannot be read, of each property that is not any text; and what refuses them.
WRONG: dict[str, tuple[tuple[str, ...], tuple[Operation, ...]]] = {
    "commit.manifest.target-size-bytes": (("9223372036854775808", "8MB", "", "0", "-1", "1.5"), BOTH),
    "write.manifest.compression-codec": (("lzo", "deflate", ""), BOTH),
    "write.manifest.compression-level": (("best", "99"), BOTH),
    "schema.name-mapping.default": (("{", '[{"field-id": "x"}]', "5"), BOTH),
    "write.delete.granularity": (("row", ""), BOTH),
    "write.object-storage.enabled": (("maybe",), BOTH),
    "write.object-storage.partitioned-paths": (("maybe",), BOTH),
    "write.py-location-provider.impl": (("no.such.module", "nodots", "producer.planning.planner.nothing"), BOTH),
    "write.metadata.previous-versions-max": (
        (
            "2147483648",
            "many",
        ),
        BOTH,
    ),
    "write.metadata.delete-after-commit.enabled": (("sure",), BOTH),
    "write.data.path": (("file:///t/a#b", "s3://b/a?b"), BOTH),
    "write.metadata.path": (("file:///t/a#b", "s3://b/a?b"), BOTH),
    "write.object-storage.path": (("file:///t/a#b",), BOTH),
    "write.folder-storage.path": (("file:///t/a#b",), BOTH),
    "write.parquet.compression-codec": (("lzo", ""), BOTH),
    "write.parquet.compression-level": (("best",), BOTH),
    "write.delete.parquet.compression-codec": (("lzo",), (Operation.CONVERT,)),
    "write.delete.parquet.compression-level": (("best",), (Operation.CONVERT,)),
    "write.metadata.metrics.max-inferred-column-defaults": (
        (
            "2147483648",
            "few",
        ),
        COMPACT,
    ),
    "write.parquet.row-group-size-bytes": (("2147483648", "abc", "128MB", "0"), COMPACT),
    "write.parquet.row-group-limit": (("2147483648", "abc", "0"), COMPACT),
    "write.parquet.page-size-bytes": (("2147483648", "abc", "0", "1.5"), COMPACT),
    "write.parquet.page-row-limit": (("2147483648", "abc", "-5"), COMPACT),
    "write.parquet.page-version": (("v3", "2"), COMPACT),
    "write.parquet.dict-size-bytes": (("2147483648", "abc", "0"), COMPACT),
    "write.parquet.bloom-filter-max-bytes": (("2147483648", "abc", "0"), COMPACT),
    "write.parquet.bloom-filter-fpp.column.s": (("1", "0", "some", "1e-300", "0.9999999999999999"), COMPACT),
    "write.parquet.bloom-filter-ndv.column.s": (("9223372036854775808", "0", "many"), COMPACT),
}
#: Properties that may be any text, or that have a check of their own (the target size: an option may overrule it).
ANY = {
    "parquet.enable.dictionary",
    "write.metadata.metrics.column.",
    "write.metadata.metrics.default",
    "write.parquet.bloom-filter-enabled.column.",
    "write.parquet.stats-enabled.column.",
    "write.target-file-size-bytes",
}
GOOD = {
    "commit.manifest.target-size-bytes": "9223372036854775807",
    "write.data.path": "file:///t/da ta%20é",
    "write.manifest.compression-codec": "ZSTD",
    "write.manifest.compression-level": "3",
    "schema.name-mapping.default": '[{"field-id": 1, "names": ["id"]}]',
    "write.delete.granularity": "Partition",
    "write.object-storage.enabled": "true",
    "write.object-storage.partitioned-paths": "False",
    "write.metadata.previous-versions-max": "10",
    "write.parquet.compression-codec": "GZIP",
    "write.parquet.compression-level": "9",
    "write.parquet.page-version": "V2",
    "write.parquet.row-group-size-bytes": "2147483647",
    f"{FILTER}enabled.column.s": "true",
    f"{FILTER}fpp.column.s": "0.99",
    f"{FILTER}fpp.column.gone": "never looked at",
    "write.avro.compression-codec": "whatever",
    "write.metadata.metrics.default": "no-such-mode",
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """A table with a row."""
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path_factory.mktemp('properties')}")
    stream = StreamTable.create(catalog, "db.t", SCHEMA)
    stream.append(pa.table({"id": [1], "s": ["a"]}))
    yield stream.table
    catalog.close()


def with_properties(table: Table, **properties: str) -> Table:
    """The same table as another engine may leave it: PyIceberg would not set some of these."""
    metadata = table.metadata.model_copy(update={"properties": {**table.metadata.properties, **properties}})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


@pytest.mark.parametrize(
    ("name", "value", "operation"),
    [(name, value, operation) for name, (values, by) in WRONG.items() for value in values for operation in by],
)
def test_what_cannot_be_read_is_refused(name: str, value: str, operation: Operation, plain: Table) -> None:
    codecs = {"write.manifest.compression-codec": "zstd"} if name == "write.manifest.compression-level" else {}
    table = with_properties(plain, **{f"{FILTER}enabled.column.s": "true", **codecs, name: value})
    with pytest.raises(Refused) as refused:
        check_request(table, Request.new("db.t", operation=operation))
    assert f"{name}={value!r}" in str(refused.value)
    assert (refused.value.reason, refused.value.exit_status) == (Reason.CONFIGURATION, 2)
    for other in set(BOTH) - set(WRONG[name][1]):
        check_request(table, Request.new("db.t", operation=other))


@pytest.mark.parametrize("location", ["file:///t/a#b", "s3://bucket/a?b"])
def test_a_location_that_would_be_cut_off_is_refused(location: str, plain: Table) -> None:
    metadata = plain.metadata.model_copy(update={"location": location})
    table = Table(plain.name(), metadata, plain.metadata_location, plain.io, plain.catalog)
    with pytest.raises(Refused, match="location") as refused:
        check_request(table, Request.new("db.t", operation=Operation.CONVERT))
    assert repr(location) in str(refused.value)


@pytest.mark.parametrize("operation", BOTH)
def test_what_can_be_read_is_not(operation: Operation, plain: Table) -> None:
    check_request(with_properties(plain, **GOOD), Request.new("db.t", operation=operation))
    check_request(plain, Request.new("db.t", operation=operation))


@pytest.mark.parametrize(
    ("name", "value"), [(n, v) for n, (values, _) in WRONG.items() for v in (*values, GOOD.get(n))]
)
def test_workers_read_whatever_is_not_refused(name: str, value: str | None, plain: Table) -> None:
    """They parse on their own, and raise nothing that planning has not refused before."""
    if value is None or name == "write.py-location-provider.impl":
        return
    properties = {f"{FILTER}enabled.column.s": "true", name: value}
    columns = stored_columns(arrow_schema(SCHEMA))
    read = {
        Operation.COMPACT: lambda: (
            WriteProperties.of(properties, SCHEMA, columns).filter_bytes(1),
            modes_of(SCHEMA, properties),
        ),
        Operation.CONVERT: lambda: compression(properties, ("write.delete.parquet", "write.parquet")),
    }
    table = with_properties(plain, **properties)
    for operation, parse in read.items():
        try:
            check_request(table, Request.new("db.t", operation=operation))
        except Refused:
            continue
        parse()


def test_every_property_that_is_used_is_known() -> None:
    """Whoever begins to use another one says here what it may be."""
    found = set()
    for package in (producer, workers, tasks):
        for path in Path(package.__path__[0]).rglob("*.py"):
            if "testing" in path.parts:
                continue
            nodes = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant))
            texts = {node.value for node in nodes if isinstance(node.value, str)}
            found |= {t for t in texts if re.fullmatch(r"(write|commit|schema|parquet)\.[a-z.-]+[a-z]\.?", t)}
    modules = {"schema.as"}
    unknown = {
        name
        for name in found - modules
        if not any(known.startswith(name) for known in (*WRONG, *ANY, "write.delete.parquet"))
    }
    assert unknown == set()
    assert "write.parquet.row-group-limit" in found
