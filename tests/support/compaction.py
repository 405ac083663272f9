"""What every compacted table must be, whatever was in it: one check for all scenarios."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from producer.common.settings import Settings
from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Operation, Report, Request, Status
from tasks.local import LocalEngine
from tasks.testing import StreamTable, read_rows
from tests.support import oracle
from tests.support.commits import recount, totals
from tests.support.unreferenced import unreferenced


def compact(
    stream: StreamTable, options: Mapping[str, str] | None = None, *, unit_mb: int = 256, **asked: Any
) -> Report:
    """Compact a table in this process."""
    settings = Settings(broker_url="", unit_mb=unit_mb)
    request = Request.new(stream.identifier, operation=Operation.COMPACT, options=options, **asked)
    return LocalEngine(settings).run(request)


def check(
    stream: StreamTable,
    options: Mapping[str, str] | None = None,
    *,
    rust: bool = True,
    branch: str = "main",
    fixed: bool = True,
    **asked: Any,
) -> Report:
    """Compact a table, which has something to compact, and hold the result to the rules.

    Args:
        options: Of the compaction.
        rust: Whether iceberg-rust can read the table.
        branch: What is compacted.
        fixed: Whether the same again must find nothing to do.
    """
    head = stream.table.metadata.snapshot_by_name(branch)
    assert head is not None
    version = stream.table.metadata.format_version
    lineage = version >= 3
    before, files = oracle.rows(stream.table, branch, lineage=lineage), stream.files(branch)
    strangers = unreferenced(stream.table, metadata_files=False)
    counted = totals(head).items() <= recount(stream.table, branch).items()  # not every writer counts right

    report = compact(stream, options, branch=branch, **asked)

    assert report.status is Status.COMMITTED, report
    assert not report.failures
    table, live = stream.table, stream.files(branch)
    after = oracle.rows(table, branch, lineage=lineage)
    if lineage:
        before, after = with_lineage(before, after)
    assert after == before, (after - before, before - after)
    snapshot = table.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation.value == "replace"
    assert not counted or totals(snapshot).items() <= recount(table, branch).items()
    if rust:
        read_rows(table, snapshot.snapshot_id)  # that it can be read; what is in it, the evaluator says
    old = {file.path for file in files}
    added = [file for file in live if file.path not in old and file.content == DataFileContent.DATA]
    assert report.added_data_files == len(added)
    assert all(file.record_count for file in added)
    for file in added:
        assert file.file_sequence_number == snapshot.sequence_number
        assert file.sequence_number == (0 if version == 1 else head.sequence_number)
        check_metrics(table, file)
    assert_no_dangling(table, live)
    assert unreferenced(table, metadata_files=False) == strangers
    if fixed:
        location = table.metadata_location
        again = compact(stream, options, branch=branch, **asked)
        assert again.status is Status.NOTHING_TO_DO, again
        assert stream.table.metadata_location == location
    return report


def with_lineage(before: Counter[Any], after: Counter[Any]) -> tuple[Counter[Any], Counter[Any]]:
    """Rows that can be compared: those from before format version 3 have no ids, until the table gives them some."""
    ids = [row[-2] for row in after.elements()]
    assert len(set(ids)) == len(ids), "a row id is given out once"
    old = Counter(row[:-2] for row in before.elements() if row[-2] is None)
    known = Counter(row for row in before.elements() if row[-2] is not None)
    assert known <= after
    new = Counter(row[:-2] for row in (after - known).elements())
    return known + old, (after & known) + new


def assert_no_dangling(table: Table, live: Sequence[LiveFile]) -> None:
    """No delete file is live that reaches no data file by partition and sequence number."""
    data = [file for file in live if file.content == DataFileContent.DATA]
    for delete in live:
        if delete.content == DataFileContent.DATA:
            continue
        unpartitioned = not [f for f in table.specs()[delete.spec_id].fields if str(f.transform) != "void"]
        scope = [file for file in data if file.partition_key == delete.partition_key]
        if delete.content == DataFileContent.EQUALITY_DELETES:
            reached = [f for f in (data if unpartitioned else scope) if f.sequence_number < delete.sequence_number]
        elif delete.referenced_data_file is not None:
            reached = [file for file in data if file.path == delete.referenced_data_file]
        else:
            reached = [file for file in scope if file.sequence_number <= delete.sequence_number]
        assert reached, delete.path


def check_metrics(table: Table, file: LiveFile) -> None:
    """What the manifest says of a file against its rows: counts exact, every value within its bounds."""
    read = pq.read_table(file.path.removeprefix("file://"))
    assert read.num_rows == file.record_count
    assert table.io.new_input(file.path).__len__() == file.size
    schema = table.schema()
    for field_id, values in _columns(read):
        if field_id not in schema.field_ids:
            continue
        type_ = schema.find_type(field_id)
        if not isinstance(type_, PrimitiveType):
            continue
        present = [value for value in values if value is not None]
        numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        if field_id in file.data_file.value_counts:
            assert file.data_file.value_counts[field_id] == len(values)
            assert file.null_value_counts[field_id] == len(values) - len(present)
            assert file.data_file.nan_value_counts.get(field_id, 0) == len(present) - len(numbers)
        lower, upper = file.lower_bounds.get(field_id), file.upper_bounds.get(field_id)
        if lower is not None:
            assert all(_key(from_bytes(type_, lower)) <= _key(value) for value in numbers), (field_id, lower)
        if upper is not None:
            assert all(_key(from_bytes(type_, upper)) >= _key(value) for value in numbers), (field_id, upper)


def _columns(table: pa.Table) -> list[tuple[int, list[Any]]]:
    """Values of the leaves that lie in no list or map, by field id; those of null structs are null."""
    found = []
    for field, column in zip(table.schema, table.columns, strict=True):
        found += _leaves(field, column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return found


def _leaves(field: pa.Field, array: pa.Array) -> list[tuple[int, list[Any]]]:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_struct(field.type):
        return [leaf for child, part in zip(field.type, array.flatten(), strict=True) for leaf in _leaves(child, part)]
    if pa.types.is_nested(field.type):
        return []
    return [(int(field.metadata[b"PARQUET:field_id"]), _internal(array))]


def _internal(array: pa.Array) -> list[Any]:
    """Values in Iceberg's internal form, as bounds have them."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_temporal(array.type):
        array = array.cast(pa.int64())
    values: list[Any] = array.to_pylist()
    return values


def _key(value: Any) -> Any:
    """Values in their order; zeros apart, as readers order them."""
    if isinstance(value, UUID):
        return value.bytes
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return (value, struct.pack(">d", value)[0] < 128)
    return value
