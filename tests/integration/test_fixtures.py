"""Tables that other engines wrote: converted as they are, and upgraded to format version 3 first."""

from __future__ import annotations

import datetime
import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from producer.model.job import Status
from tasks.testing import StreamTable, local_catalog, read_rows
from tests.support import oracle
from tests.support.scenario import check_delete_files, multiset, run

FIXTURES = os.environ.get("ICEFLEET_FIXTURES", "")
pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not FIXTURES, reason="ICEFLEET_FIXTURES is unset: no tables of other engines to convert"),
]

_NUMBERS = itertools.count()


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)


#: Rows as the sources themselves state them.
EQUALITY: dict[str, list[tuple[Any, ...]]] = {
    "impala/v2/iceberg_v2_delete_equality": [(1, "test_1_base"), (2, "test_2_updated")],
    "impala/v2/iceberg_v2_delete_equality_nulls": [(1, "str1"), (4, "str4"), (None, "str5")],
    "impala/v2/iceberg_v2_delete_equality_partitioned": [
        (1, "str1", day("2023-12-24")),
        (2, "str2", day("2023-12-24")),
        (333333, "str3", day("2023-12-24")),
        (4, "str4", day("2023-12-24")),
        (1, "str1", day("2023-12-25")),
        (222, "str2", day("2023-12-25")),
    ],
    "impala/v2/iceberg_v2_delete_both_eq_and_pos": [
        (2, "str2_updated", day("2023-12-13")),
        (3, "str3", day("2023-12-23")),
    ],
    "duckdb/equality_deletes": [(4, "d", day("2025-01-04")), (5, "e", day("2025-01-05"))],
    "duckdb/equality_delete_cross_partition": [(0, 999, "p0-k999"), (1, 100, "p1-k100"), (1, 888, "p1-k888")],
}
POSITIONS: dict[str, list[tuple[Any, ...]]] = {
    "impala/v2/iceberg_v2_positional_not_all_data_files_have_delete_files": [
        (1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "X"), (6, "f"),
    ],
    "impala/v2/iceberg_v2_partitioned_position_deletes": [(i,) for i in range(2, 21, 2)],
    "impala/v2/iceberg_spark_compaction_with_dangling_delete": [(1, 10), (2, 20), (3, 30), (5, 50)],
    "impala/v3/iceberg_v3_deletion_vectors": [(1,), (3,), (5,)],
    "impala/v3/iceberg_v3_row_lineage": [(1,), (2,), (3,)],
}  # fmt: skip


@pytest.fixture
def relocated(spark: object, default_catalog: Path, tmp_path: Path) -> Any:
    """A fresh copy of a table, registered in the catalog ``default``."""
    catalog = local_catalog(default_catalog)
    catalog.create_namespace_if_not_exists("fixture")

    def made(name: str, *, upgrade: bool = False) -> StreamTable:
        number = next(_NUMBERS)
        tool = Path(FIXTURES).parent / "tools" / "relocate_table.py"
        command = [sys.executable, str(tool), str(Path(FIXTURES) / name), str(tmp_path / f"copy{number}")]
        location = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        identifier = f"fixture.t{number}"
        catalog.register_table(identifier, location)
        stream = StreamTable(catalog, identifier)
        if upgrade:
            stream.upgrade()
        return stream

    return made


def first_columns(rows: pa.Table, width: int) -> Counter[Any]:
    """The rows that an independent reader sees, cut to the columns that are written down here."""
    return multiset(list(row.values())[:width] for row in rows.to_pylist())


def seen(stream: StreamTable, width: int) -> Counter[Any]:
    """What the evaluator of the specification and iceberg-rust agree on."""
    table = stream.table
    judged: Counter[Any] = Counter(row[:width] for row in oracle.rows(table).elements())
    assert first_columns(read_rows(table), width) == judged
    return judged


@pytest.mark.parametrize("upgrade", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("name", EQUALITY)
def test_equality_deletes(relocated: Any, name: str, upgrade: bool) -> None:
    stream = relocated(name, upgrade=upgrade)
    expected = EQUALITY[name]
    before = {file.identity for file in stream.files()}
    assert seen(stream, len(expected[0])) == multiset(expected)

    report = run(stream)

    assert report.status is Status.COMMITTED, report
    assert report.removed_equality_delete_files > 0
    live = stream.files()
    assert not [file for file in live if file.content == DataFileContent.EQUALITY_DELETES]
    assert seen(stream, len(expected[0])) == multiset(expected)
    version = stream.table.metadata.format_version
    assert version == (3 if upgrade else 2)
    added = [file for file in live if file.identity not in before]
    assert (report.added_position_delete_files, report.added_dvs)[version - 2] == len(added)
    check_delete_files(stream.table, live, added, version)
    if version == 2:
        scanned = stream.table.scan().to_arrow()
        assert first_columns(scanned, len(expected[0])) == multiset(expected)
    location = stream.table.metadata_location
    assert run(stream).status is Status.NOTHING_TO_DO
    assert stream.table.metadata_location == location


@pytest.mark.parametrize("name", POSITIONS)
def test_tables_without_equality_deletes_have_nothing_to_convert(relocated: Any, name: str) -> None:
    stream = relocated(name)
    expected = POSITIONS[name]
    assert seen(stream, len(expected[0])) == multiset(expected)
    location = stream.table.metadata_location
    report = run(stream)
    assert report.status is Status.NOTHING_TO_DO
    assert report.reason
    assert stream.table.metadata_location == location


@pytest.mark.parametrize("upgrade", [False, True], ids=["v2", "v3"])
@pytest.mark.parametrize("name", [name for name in POSITIONS if "/v2/" in name])
def test_position_deletes_of_others_stay_in_force(relocated: Any, name: str, upgrade: bool) -> None:
    """An equality delete beside them; in format version 3 they go into the vectors."""
    stream = relocated(name, upgrade=upgrade)
    expected = POSITIONS[name]
    first = stream.table.schema().fields[0].name
    key = pa.table({first: pa.array([expected[1][0]], stream.table.schema().as_arrow().field(first).type)})
    for record in {file.partition_key: file for file in stream.data_files()}.values():
        spec_id, partition = record.spec_id, record.data_file.partition
        stream.delete_where_equal(key, [first], partition=partition, spec_id=spec_id)
    report = run(stream)
    assert (report.status, report.added_position_deletes >= 1) == (Status.COMMITTED, True)
    left = multiset(row for row in expected if row != expected[1])
    assert seen(stream, len(expected[0])) == left
    vectors = [file for file in stream.delete_files() if file.is_vector]
    assert bool(vectors) is upgrade


def test_vectors_of_others_are_merged(relocated: Any) -> None:
    stream = relocated("impala/v3/iceberg_v3_deletion_vectors")
    before = {file.referenced_data_file: file.record_count for file in stream.delete_files() if file.is_vector}
    column = stream.table.schema().fields[0].name
    type_ = stream.table.schema().as_arrow().field(column).type
    stream.delete_where_equal(pa.table({column: pa.array([1, 2, 3, 4], type_)}), [column])
    assert run(stream).status is Status.COMMITTED
    assert seen(stream, 1) == multiset([(5,)])
    after = Counter(file.referenced_data_file for file in stream.delete_files())
    assert set(after.values()) == {1}
    assert before.keys() <= after.keys()


def test_a_vector_without_its_container_is_named(relocated: Any) -> None:
    stream = relocated("duckdb/legacy_bare_deletion_vector")
    (vector,) = (file for file in stream.delete_files() if file.is_vector)
    column = stream.table.schema().fields[0].name
    type_ = stream.table.schema().as_arrow().field(column).type
    stream.delete_where_equal(pa.table({column: pa.array([1], type_)}), [column])
    location = stream.table.metadata_location
    report = run(stream)
    assert report.status is Status.FAILED
    assert vector.path in report.failures[0].reason
    assert "Puffin" in report.failures[0].reason
    assert stream.table.metadata_location == location


@pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])
def test_files_without_field_ids(relocated: Any, version: int) -> None:
    """10,000 rows whose columns only the name mapping knows, in a table of format version 1."""
    stream = relocated("duckdb/name_mapping")
    first = run(stream)
    assert (first.status, first.snapshot_id) == (Status.NOTHING_TO_DO, None)
    stream.upgrade(version)
    table = stream.table
    before = read_rows(table)
    assert before.num_rows == 10_000
    column = table.schema().fields[0].name
    values = before[column].unique().slice(3, 5)
    gone = sum(1 for value in before[column].to_pylist() if value in set(values.to_pylist()))
    type_ = table.schema().as_arrow().field(column).type
    stream.delete_where_equal(pa.table({column: values.cast(type_)}), [column])
    report = run(stream)
    assert (report.status, report.added_position_deletes) == (Status.COMMITTED, gone)
    after = read_rows(stream.table)
    assert after.num_rows == 10_000 - gone
    assert not set(after[column].to_pylist()) & set(values.to_pylist())
