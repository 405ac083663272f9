"""What every converted table must be, whatever was in it: one check for all scenarios."""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataUtil

from producer.common.settings import Settings
from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Report, Request, Status
from producer.model.plan import VectorRef
from tasks.local import LocalEngine
from tasks.testing import StreamTable, read_rows
from tests.support import oracle
from tests.support.unreferenced import unreferenced
from workers.formats.puffin import read_footer, read_vector

Rows = Sequence[Sequence[Any]]
_PATH, _POS = 2147483546, 2147483545


def run(stream: StreamTable, *, unit_mb: int = 256, **asked: Any) -> Report:
    """Convert a table in this process."""
    return LocalEngine(Settings(broker_url="", unit_mb=unit_mb)).run(Request.new(stream.identifier, **asked))


def check(
    stream: StreamTable,
    expected: Rows,
    *,
    positions: int,
    files: int | None = None,
    remaining: int = 0,
    branch: str = "main",
    rust: bool = True,
    judge: bool = True,
    unit_mb: int = 256,
    where: str | None = None,
) -> Report:
    """Convert a table and hold the result to the rules.

    Args:
        expected: The table's rows, before as after, in any order.
        positions: New positions.
        files: Position delete files or vectors that are added.
        remaining: Equality delete files that stay.
        branch: What is converted.
        rust: Whether iceberg-rust can read the table.
        judge: Whether the evaluator can; if not, PyIceberg says what came out.
    """
    asked: dict[str, Any] = {"branch": branch, "where": where}
    head = stream.table.metadata.snapshot_by_name(branch)
    before = {file.identity for file in stream.files(branch)}
    assert not judge or oracle.rows(stream.table, branch) == multiset(expected), "the scenario itself"

    report = run(stream, unit_mb=unit_mb, **asked)

    table, live = stream.table, stream.files(branch)
    assert report.status is Status.COMMITTED, report
    assert not report.failures
    after = oracle.rows(table, branch) if judge else multiset(r.values() for r in table.scan().to_arrow().to_pylist())
    assert after == multiset(expected)
    if rust:
        snapshot = table.metadata.snapshot_by_name(branch)
        assert snapshot is not None
        read = read_rows(table, snapshot.snapshot_id).to_pylist()
        assert multiset(row.values() for row in read) == multiset(expected)
    assert len([f for f in live if f.content == DataFileContent.EQUALITY_DELETES]) == remaining
    added = [file for file in live if file.identity not in before]
    version = table.metadata.format_version
    check_summary(table, branch, report, version, positions, added)
    assert files is None or len(added) == files
    assert head is not None
    assert {f.path for f in live if f.content == DataFileContent.DATA} == {
        path for path, _ in before if path in {d.path for d in stream.data_files(branch)}
    }
    check_delete_files(table, live, added, version)
    assert not unreferenced(table, metadata_files=False)

    location = table.metadata_location
    again = run(stream, **asked) if not remaining else None
    assert again is None or again.status is Status.NOTHING_TO_DO
    assert stream.table.metadata_location == location
    return report


def check_summary(
    table: Table, branch: str, report: Report, version: int, positions: int, added: Sequence[LiveFile]
) -> None:
    """The report, the snapshot's summary and a recount say the same."""
    snapshot = table.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id == report.snapshot_id
    assert snapshot.summary.operation.value == ("delete" if added else "overwrite")
    totals = snapshot.summary.additional_properties
    assert report.added_position_deletes == sum(file.record_count for file in added)
    # Vectors that are replaced, and position deletes that went into one, count as removed.
    assert report.added_position_deletes - int(totals.get("removed-position-deletes", 0)) == positions
    assert (report.added_position_delete_files, report.added_dvs) == (
        (len(added), 0) if version < 3 else (0, len(added))
    )
    live = oracle.live_files(table, branch)
    recount = {
        "total-data-files": sum(f.content == DataFileContent.DATA for f in live),
        "total-delete-files": sum(f.content != DataFileContent.DATA for f in live),
        "total-position-deletes": sum(f.record_count for f in live if f.content == DataFileContent.POSITION_DELETES),
        "total-equality-deletes": sum(f.record_count for f in live if f.content == DataFileContent.EQUALITY_DELETES),
        "total-records": sum(f.record_count for f in live if f.content == DataFileContent.DATA),
    }
    assert {name: int(totals.get(name, 0)) for name in recount} == recount


def check_delete_files(table: Table, live: Sequence[LiveFile], added: Iterable[LiveFile], version: int) -> None:
    """Every new delete file is what the spec asks for, down to its own bytes."""
    data = {file.path: file for file in live if file.content == DataFileContent.DATA}
    vectors = Counter(file.referenced_data_file for file in live if file.is_vector)
    assert not vectors or max(vectors.values()) == 1
    for file in added:
        assert file.content == DataFileContent.POSITION_DELETES
        assert file.is_vector == (version >= 3)
        assert file.data_file.sort_order_id is None
        if file.is_vector:
            named = {_check_vector(table, file)}
        else:
            named = _check_position_deletes(file)
        assert {data[path].partition_key for path in named} == {file.partition_key}


def _check_vector(table: Table, file: LiveFile) -> str:
    path = str(file.referenced_data_file)
    offset, size = file.content_offset or 0, file.content_size or 0
    (blob,) = [b for b in read_footer(table.io, file.path).blobs if b.offset == offset]
    assert (blob.length, blob.type, blob.properties["referenced-data-file"]) == (size, "deletion-vector-v1", path)
    assert file.format == FileFormat.PUFFIN
    assert file.size == len(table.io.new_input(file.path))
    assert not file.lower_bounds
    assert not file.upper_bounds
    vector = read_vector(
        table.io, VectorRef(path=file.path, offset=offset, size=size, cardinality=file.record_count), path
    )
    assert vector.cardinality == file.record_count
    return path


def _check_position_deletes(file: LiveFile) -> set[str]:
    read = pq.read_table(file.path.removeprefix("file://"))
    pairs = list(zip(read["file_path"].to_pylist(), read["pos"].to_pylist(), strict=True))
    assert pairs == sorted(set(pairs))
    assert file.record_count == len(pairs)
    assert file.lower_bounds == {_PATH: pairs[0][0].encode(), _POS: _long(min(p for _, p in pairs))}
    assert file.upper_bounds == {_PATH: pairs[-1][0].encode(), _POS: _long(max(p for _, p in pairs))}
    assert file.null_value_counts.get(_PATH, 0) == 0
    named = {path for path, _ in pairs}
    assert file.referenced_data_file == (next(iter(named)) if len(named) == 1 else None)
    return named


def _long(number: int) -> bytes:
    return struct.pack("<q", number)


def multiset(rows: Iterable[Iterable[Any]]) -> Counter[Any]:
    """Rows as the oracle counts them: floats by bits, every NaN as one, structs as pairs."""
    return Counter(tuple(map(_plain, row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, dict):
        return tuple((name, _plain(part)) for name, part in value.items())
    return tuple(value) if isinstance(value, list) else value


def rewrite(stream: StreamTable, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a table's metadata as PyIceberg's own updates cannot."""
    table = stream.table
    document = json.loads(table.metadata.model_dump_json())
    change(document)
    location = table.location_provider().new_table_metadata_file_location(99_000 + len(document["metadata-log"]))
    ToOutputFile.table_metadata(TableMetadataUtil.parse_obj(document), table.io.new_output(location))
    stream.catalog.drop_table(stream.identifier)
    stream.catalog.register_table(stream.identifier, location)


def evolve(stream: StreamTable, *fields: dict[str, Any]) -> None:
    """Give a table a new current schema: fields as the spec writes them in JSON."""

    def change(document: dict[str, Any]) -> None:
        schema_id = max(schema["schema-id"] for schema in document["schemas"]) + 1
        document["schemas"].append({"type": "struct", "schema-id": schema_id, "fields": list(fields)})
        document["current-schema-id"] = schema_id
        document["last-column-id"] = max(document["last-column-id"], *(field["id"] for field in fields))

    rewrite(stream, change)
