"""Tables with columns whose values are not rewritten: converted all the same, and not compacted."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, ListType, LongType, NestedField, PrimitiveType, UnknownType

from producer.model.job import Operation, Status
from tasks.testing import StreamTable
from tests.support.commits import equality, rows
from tests.support.faulty import FaultyCatalog, Jobs


def made(catalog: FaultyCatalog, column: NestedField) -> StreamTable:
    schema = Schema(NestedField(1, "id", LongType(), required=False), column)
    stream = StreamTable.create(catalog, "db.g", schema, spec=PartitionSpec(), format_version=3)
    stream.append(rows(1, 2, 3).select(["id"]))
    stream.delete_where_equal(rows(2).select(["id"]), ["id"])
    return stream


@pytest.mark.parametrize("type_", [GeometryType(), GeographyType()], ids=str)
@pytest.mark.parametrize("nested", [False, True])
def test_shapes(catalog: FaultyCatalog, jobs: Jobs, type_: PrimitiveType, nested: bool) -> None:
    column = NestedField(2, "shape", ListType(3, type_) if nested else type_, required=False)
    stream = made(catalog, column)
    before = stream.table.metadata_location
    report = jobs.run(jobs.request("db.g", operation=Operation.COMPACT, options={"rewrite-all": "true"}))
    assert (report.status, report.exit_status) == (Status.REFUSED, 2)
    name = "shape.element" if nested else "shape"
    assert report.reason == f"Column {name} of db.g is of type {type_}: it is not compacted so far."
    assert stream.table.metadata_location == before
    report = jobs.run(table="db.g")
    assert (report.status, report.added_dvs, equality(stream)) == (Status.COMMITTED, 1, [])
    assert str(stream.table.schema().find_type(name)) == str(type_)


def test_an_unknown_column(catalog: FaultyCatalog, jobs: Jobs) -> None:
    stream = made(catalog, NestedField(2, "nothing", UnknownType(), required=False))
    assert jobs.run(table="db.g").status is Status.COMMITTED
    report = jobs.run(jobs.request("db.g", operation=Operation.COMPACT, options={"rewrite-all": "true"}))
    assert report.status is Status.COMMITTED
    [file] = stream.data_files()
    assert file.record_count == 2
