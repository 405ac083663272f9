"""Tables that other engines wrote: compacted as they are, and upgraded to format version 3 first."""

from __future__ import annotations

from typing import Any

import pytest

from producer.model.job import Status
from tests.integration.test_fixtures import EQUALITY, FIXTURES, POSITIONS, relocated, seen
from tests.support import oracle
from tests.support.compaction import check, compact
from tests.support.scenario import multiset

__all__ = ["relocated"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FIXTURES, reason="ICEFLEET_FIXTURES is unset: no tables of other engines to compact"),
]

TABLES = EQUALITY | POSITIONS
ALL = {"rewrite-all": "true"}


@pytest.mark.parametrize("upgrade", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("name", [name for name in TABLES if "/v3/" not in name])
def test_everything_is_rewritten(relocated: Any, name: str, upgrade: bool) -> None:
    """Deletes are applied and gone, one file is left of each partition, and every row is what it was."""
    stream = relocated(name, upgrade=upgrade)
    expected = TABLES[name]
    assert seen(stream, len(expected[0])) == multiset(expected)
    check(stream, ALL, fixed=False)
    assert seen(stream, len(expected[0])) == multiset(expected)
    assert stream.delete_files() == []
    files = stream.data_files()
    assert len(files) == len({file.partition_key for file in files})
    assert compact(stream).status is Status.NOTHING_TO_DO


@pytest.mark.parametrize("upgrade", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("name", EQUALITY)
def test_only_what_deletes_reach(relocated: Any, name: str, upgrade: bool) -> None:
    stream = relocated(name, upgrade=upgrade)
    check(stream, {"delete-file-threshold": "1"})
    assert seen(stream, len(EQUALITY[name][0])) == multiset(EQUALITY[name])


def test_row_lineage(relocated: Any) -> None:
    """Three appends that Spark has compacted once already: ids and numbers of the last update stay as it left them."""
    stream = relocated("impala/v3/iceberg_v3_row_lineage")
    before = oracle.rows(stream.table, lineage=True)
    assert before == multiset([(1, 0, 1), (2, 1, 2), (3, 2, 3)])
    check(stream, ALL, fixed=False)
    assert oracle.rows(stream.table, lineage=True) == before


def test_vectors_leave_with_their_files(relocated: Any) -> None:
    stream = relocated("impala/v3/iceberg_v3_deletion_vectors")
    assert [file for file in stream.delete_files() if file.is_vector]
    check(stream, {"delete-ratio-threshold": "0.01"})
    assert stream.delete_files() == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_files_without_field_ids_gain_them(relocated: Any, version: int) -> None:
    stream = relocated("duckdb/name_mapping")
    if version > 1:
        stream.upgrade(version)
    check(stream, ALL, fixed=False)
    with stream.table.update_schema() as update:
        update.rename_column(stream.table.schema().fields[0].name, "renamed")
    assert sum(oracle.rows(stream.table).values()) == 10_000
    assert stream.table.scan(selected_fields=("renamed",)).to_arrow().column(0).null_count < 10_000


def test_a_dangling_delete_is_dropped_once_it_was_read(relocated: Any) -> None:
    """It is as old as the data, so that its number leaves it possible that it is about them; what it names does not."""
    stream = relocated("impala/v2/iceberg_spark_compaction_with_dangling_delete")
    assert compact(stream).status is Status.NOTHING_TO_DO
    assert stream.delete_files()
    assert check(stream, ALL, fixed=False).removed_delete_files == 1
    assert stream.delete_files() == []


def test_a_vector_without_its_container_is_named(relocated: Any) -> None:
    stream = relocated("duckdb/legacy_bare_deletion_vector")
    (vector,) = (file for file in stream.delete_files() if file.is_vector)
    location = stream.table.metadata_location
    report = compact(stream, ALL)
    assert report.status is Status.FAILED
    assert vector.path in report.failures[0].reason
    assert stream.table.metadata_location == location
