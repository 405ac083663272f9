"""Snapshots: what they take over, rewrite and remove, and what happens when another writer was first."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from producer.common.errors import Conflict, Refused
from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.iceberg.manifest_reader import first_row_id, read_manifest_list, read_manifests
from producer.iceberg.snapshot_producer import SnapshotProducer, metadata_files
from producer.iceberg.snapshots import PendingSnapshot
from tasks.testing import local_catalog

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = local_catalog(tmp_path)
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def table(catalog: SqlCatalog, request: pytest.FixtureRequest) -> Table:
    properties = {"format-version": str(request.param)}
    return catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, properties=properties)


def data(path: str, partition: str = "a", sequence_number: int | None = None) -> NewFile:
    record = new_data_file(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(partition),
        record_count=10,
        file_size_in_bytes=100,
    )
    return NewFile(record, 0, sequence_number)


def equality(path: str) -> NewFile:
    record = new_data_file(
        content=DataFileContent.EQUALITY_DELETES,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record("a"),
        record_count=1,
        file_size_in_bytes=10,
        equality_ids=[1],
    )
    return NewFile(record, 0)


def prepared(
    table: Table,
    added: list[NewFile],
    removed: list[LiveFile] | None = None,
    operation: Operation = Operation.APPEND,
    **options: Any,
) -> PendingSnapshot:
    fresh = table.catalog.load_table(table.name())
    update = SnapshotProducer(fresh, operation=operation, **options)
    update.add(added)
    update.remove(removed or [])
    return update.prepare()


def manifests(table: Table, branch: str = "main") -> list[ManifestFile]:
    fresh = table.refresh()
    snapshot = fresh.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    return read_manifest_list(fresh.io, snapshot)


def live(table: Table, branch: str = "main") -> dict[str, LiveFile]:
    return {file.path: file for file in read_manifests(table.io, manifests(table, branch))}


def on_disk(table: Table) -> set[str]:
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    return {f"file://{path}" for path in folder.glob("*.avro")}


def test_the_first_snapshot_of_a_table(table: Table) -> None:
    snapshot = prepared(table, [data("a"), equality("d")], properties={"job": "j"}).commit()
    table.refresh()
    assert table.current_snapshot() == snapshot
    assert (snapshot.parent_snapshot_id, snapshot.sequence_number, snapshot.schema_id) == (None, 1, 0)
    assert snapshot.summary is not None
    assert snapshot.summary["job"] == "j"
    assert snapshot.summary.operation == Operation.APPEND
    assert {path: file.sequence_number for path, file in live(table).items()} == {"a": 1, "d": 1}
    assert [manifest.content for manifest in manifests(table)] == [ManifestContent.DATA, ManifestContent.DELETES]
    if table.metadata.format_version == 3:
        assert (snapshot.first_row_id, snapshot.added_rows, table.metadata.next_row_id) == (0, 10, 10)


def test_manifests_that_lose_nothing_are_taken_over(table: Table) -> None:
    prepared(table, [data("a"), data("b", "x")]).commit()
    prepared(table, [data("c")]).commit()
    before = {manifest.manifest_path: first_row_id(manifest) for manifest in manifests(table)}
    attempt = prepared(table, [equality("d")], [live(table)["a"]], Operation.OVERWRITE)
    attempt.commit()
    kept = {m.manifest_path: first_row_id(m) for m in manifests(table) if m.manifest_path in before}
    assert len(kept) == 1
    assert kept.items() <= before.items()
    assert set(live(table)) == {"b", "c", "d"}
    assert set(attempt.written) | set(before) <= on_disk(table)
    assert (live(table)["b"].sequence_number, live(table)["c"].sequence_number) == (1, 2)


def test_manifests_without_live_files_leave_with_the_next_snapshot(table: Table) -> None:
    prepared(table, [data("a")]).commit()
    prepared(table, [], [live(table)["a"]], Operation.DELETE).commit()
    assert [(m.existing_files_count, m.deleted_files_count) for m in manifests(table)] == [(0, 1)]
    prepared(table, [data("b")]).commit()
    assert [m.added_files_count for m in manifests(table)] == [1]


def test_small_manifests_that_are_rewritten_end_up_together(table: Table) -> None:
    """A stream leaves a manifest for each of its commits."""
    for n in range(5):
        prepared(table, [equality(f"d{n}")]).commit()
    removed = list(live(table).values())
    attempt = prepared(table, [], removed[1:], Operation.OVERWRITE)
    attempt.commit()
    counts = [(m.existing_files_count, m.deleted_files_count) for m in manifests(table)]
    assert sorted(counts) == [(0, 0), (0, 4)]
    assert len(attempt.written) == 2


def test_old_data_sequence_numbers_are_kept(table: Table) -> None:
    prepared(table, [data("a")]).commit()
    prepared(table, [equality("d")]).commit()
    prepared(table, [data("b", sequence_number=1)], [live(table)["a"]], Operation.REPLACE).commit()
    b = live(table)["b"]
    assert (b.sequence_number, b.file_sequence_number) == (1, 3)
    assert min(m.min_sequence_number for m in manifests(table)) == 1


def test_files_are_found_where_another_writer_moved_them(table: Table) -> None:
    prepared(table, [data("a"), data("b"), data("c")]).commit()
    stale = live(table)
    prepared(table, [], [stale["b"]], Operation.DELETE).commit()
    prepared(table, [], [stale["a"]], Operation.DELETE).commit()
    assert set(live(table)) == {"c"}


def test_a_file_that_was_removed_is_a_conflict_and_leaves_nothing_behind(table: Table) -> None:
    prepared(table, [data("a"), data("b")]).commit()
    stale = live(table)
    prepared(table, [], [stale["b"]], Operation.DELETE).commit()
    before = on_disk(table)
    with pytest.raises(Conflict, match="b"):
        prepared(table, [data("c")], [stale["b"]], Operation.DELETE)
    assert on_disk(table) == before


def test_nothing_is_seen_before_the_commit_and_discard_leaves_nothing(table: Table) -> None:
    prepared(table, [data("a")]).commit()
    before = on_disk(table)
    attempt = prepared(table, [data("b")])
    assert set(live(table)) == {"a"}
    assert on_disk(table) == before | set(attempt.written)
    attempt.discard()
    attempt.discard()
    assert on_disk(table) == before


def test_the_history_is_in_order_where_the_clock_is_behind(
    catalog: SqlCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(table, [data("a")]).commit()
    behind = time.time() - 600
    monkeypatch.setattr("producer.iceberg.snapshot_producer.time.time", lambda: behind)
    clock = Mock(wraps=datetime, **{"now.return_value": datetime.fromtimestamp(behind, UTC)})
    monkeypatch.setattr("pyiceberg.table.update.datetime", clock)
    prepared(table, [data("b")]).commit()
    metadata = catalog.load_table("db.t").metadata
    times = [entry.timestamp_ms for entry in metadata.snapshot_log]
    assert times == sorted(times)
    assert metadata.last_updated_ms >= times[-1]


@pytest.mark.parametrize("stuck", ["-m0.avro", "-m1.avro", "/snap-"])
def test_what_cannot_be_deleted_is_found_again(table: Table, monkeypatch: pytest.MonkeyPatch, stuck: str) -> None:
    attempt = prepared(table, [data("a"), equality("d")], name="an-attempt")
    delete = attempt.table.io.delete

    def refuse(path: str) -> None:
        if stuck in path:
            raise OSError("Input/output error")
        delete(path)

    monkeypatch.setattr(attempt.table.io, "delete", refuse)
    with pytest.raises(OSError, match="Input/output"):
        attempt.discard()
    left = set(attempt.written) & on_disk(table)
    assert left
    assert left <= set(metadata_files(table, "an-attempt", attempt.snapshot.snapshot_id))


def test_a_lost_race_has_an_error_of_its_own(table: Table) -> None:
    late = prepared(table, [data("a")])
    prepared(table, [data("b")]).commit()
    with pytest.raises(CommitFailedException):
        late.commit()
    assert set(live(table)) == {"b"}
    late.discard()
    prepared(table, [data("a")]).commit()
    assert set(live(table)) == {"a", "b"}


def test_a_race_lost_to_another_branch_is_lost_too(table: Table) -> None:
    """Sequence numbers and row ids are the table's, not the branch's."""
    prepared(table, [data("a")]).commit()
    prepared(table, [data("b")], branch="audit", create_branch=True).commit()
    late = prepared(table, [data("c")])
    prepared(table, [equality("d")], branch="audit").commit()
    with pytest.raises(CommitFailedException, match="sequence number"):
        late.commit()
    table.refresh()
    assert len({s.sequence_number for s in table.metadata.snapshots}) == len(table.metadata.snapshots)


def test_a_race_lost_in_a_catalog_of_another_kind(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(table, [data("a")]).commit()
    late = prepared(table, [data("b")])
    prepared(table, [data("c")]).commit()

    def refuse(*_: Any) -> None:
        raise ValueError("older than last sequence number")

    monkeypatch.setattr(late.table.catalog, "commit_table", refuse)
    with pytest.raises(CommitFailedException):
        late.commit()


def test_a_catalogs_other_errors_come_through(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = prepared(table, [data("a")])

    def refuse(*_: Any) -> None:
        raise ValueError("something else")

    monkeypatch.setattr(attempt.table.catalog, "commit_table", refuse)
    with pytest.raises(ValueError, match="something else"):
        attempt.commit()


def test_an_answer_that_cannot_be_read_after_success_is_success(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = prepared(table, [data("a")])
    commit_table = attempt.table.catalog.commit_table

    def garbled(*arguments: Any) -> None:
        commit_table(*arguments)
        raise ValueError("not what was expected")

    monkeypatch.setattr(attempt.table.catalog, "commit_table", garbled)
    assert attempt.commit() == table.refresh().current_snapshot()


def test_a_replaced_table_is_not_written_to(catalog: SqlCatalog, table: Table) -> None:
    late = prepared(table, [data("a")])
    catalog.drop_table("db.t")
    with pytest.raises(CommitFailedException):
        late.commit()
    catalog.create_table("db.t", SCHEMA, location=f"{table.location()}-2")
    with pytest.raises(CommitFailedException):
        late.commit()


class TestBranches:
    """A snapshot moves the one ref it is for."""

    def test_a_branch_is_moved_and_main_is_not(self, table: Table) -> None:
        main = prepared(table, [data("a")]).commit()
        prepared(table, [data("b")], branch="audit", create_branch=True).commit()
        head = prepared(table, [data("c")], branch="audit").commit()
        table.refresh()
        assert table.metadata.current_snapshot_id == main.snapshot_id
        assert table.metadata.refs["audit"].snapshot_id == head.snapshot_id
        assert (set(live(table)), set(live(table, "audit"))) == ({"a"}, {"a", "b", "c"})

    def test_retention_settings_are_kept(self, table: Table) -> None:
        main = prepared(table, [data("a")]).commit()
        with table.refresh().manage_snapshots() as refs:
            refs.create_branch(main.snapshot_id, "audit", 1000, 2000, 3)
        prepared(table, [data("b")], branch="audit").commit()
        ref = table.refresh().metadata.refs["audit"]
        assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (1000, 2000, 3)

    def test_a_missing_branch_is_refused(self, table: Table) -> None:
        prepared(table, [data("a")]).commit()
        with pytest.raises(Refused, match="no branch 'audit'"):
            prepared(table, [data("b")], branch="audit")

    def test_a_tag_is_refused(self, table: Table) -> None:
        main = prepared(table, [data("a")]).commit()
        with table.refresh().manage_snapshots() as refs:
            refs.create_tag(main.snapshot_id, "v1")
        with pytest.raises(Refused, match="'v1' is a tag"):
            prepared(table, [data("b")], branch="v1")


def test_row_ids_go_on_where_the_metadata_lost_count(catalog: SqlCatalog) -> None:
    """PyIceberg leaves the next row id out when it does not know it."""
    table = catalog.create_table("db.t", SCHEMA, partition_spec=SPEC, properties={"format-version": "3"})
    prepared(table, [data("a")]).commit()
    path = Path(table.refresh().metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    assert document.pop("next-row-id") == 10
    path.write_text(json.dumps(document))
    second = prepared(table, [data("b")]).commit()
    assert (second.first_row_id, second.added_rows) == (10, 10)
    assert table.refresh().metadata.next_row_id == 20
    assert {path: file.first_row_id for path, file in live(table).items()} == {"a": 0, "b": 10}
