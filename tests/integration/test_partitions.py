"""Where an equality delete reaches: partitions, historic specs, and all of the table."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType

from producer.model.job import Status
from tasks.testing import StreamTable
from tests.integration.conftest import Create
from tests.support import compaction
from tests.support.scenario import check, run

pytestmark = pytest.mark.spark

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "ts", TimestampType(), required=False),
    NestedField(4, "day", DateType(), required=False),
)
NOON = datetime.datetime(2024, 5, 1, 12)
DAY = datetime.date(1969, 12, 31)


def by(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    return PartitionSpec(*(PartitionField(source, 1000 + n, how, f"p{n}") for n, (source, how) in enumerate(fields)))


def rows(*given: tuple[Any, ...]) -> pa.Table:
    """Rows of (id, part), and where they are given of (id, part, ts, day)."""
    full = [(*row, NOON, DAY)[:4] for row in given]
    types = [pa.int64(), pa.string(), pa.timestamp("us"), pa.date32()]
    columns = zip(*full, strict=True)
    return pa.table([pa.array(c, t) for c, t in zip(columns, types, strict=True)], ["id", "part", "ts", "day"])


def ids(*given: int | None) -> pa.Table:
    return pa.table({"id": pa.array(given, pa.int64())})


def expected(*given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return [(*row, NOON, DAY)[:4] for row in given]


PAIRS = [(1, "a"), (2, "a"), (1, "b"), (2, "b"), (1, None), (2, None)]


@pytest.fixture
def identity(create: Create, version: int) -> StreamTable:
    """Partitioned by the text, with the same ids in each of three partitions."""
    stream = create(SCHEMA, version, spec=by((2, IdentityTransform())))
    stream.append(rows(*PAIRS))
    return stream


def test_a_delete_stays_in_its_partition(identity: StreamTable) -> None:
    """The partition column is no part of the key."""
    identity.delete_where_equal(ids(1), ["id"], partition=Record("a"))
    check(identity, expected(*PAIRS[1:]), positions=1, files=1)
    (written,) = identity.delete_files()
    assert written.is_vector or "p0=a/" in written.path


def test_null_is_a_partition(identity: StreamTable) -> None:
    identity.delete_where_equal(ids(2), ["id"], partition=Record(None))
    check(identity, expected(*PAIRS[:-1]), positions=1, files=1)


def test_null_is_not_the_partition_of_its_name(identity: StreamTable) -> None:
    """Both have the same folder; a unit holds both, and a file for each."""
    identity.append(rows((1, "null"), (2, "null")))
    identity.delete_where_equal(rows((1, None), (2, "null")), ["id"])
    check(identity, expected(*PAIRS[:4], (2, None), (1, "null")), positions=2, files=2)
    with identity.table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    identity.delete_where_equal(rows((2, None)), ["id"], spec_id=0)
    compaction.check(identity, {"rewrite-all": "true"}, fixed=False)
    found = {file.partition[0] for file in identity.data_files()}
    assert found == {"a", "b", "null"}, "of null no row is left"


def test_upserts_stay_in_their_partition(identity: StreamTable) -> None:
    identity.upsert(rows((1, "b")), ["id"])
    identity.upsert(rows((7, "new")), ["id"])
    check(identity, expected(*PAIRS, (7, "new")), positions=1, files=1)


def test_some_partitions_are_selected(identity: StreamTable) -> None:
    identity.delete_where_equal(rows((1, "a"), (2, "b"), (2, None)), ["id"])
    left = expected((2, "a"), (1, "b"), (1, None))
    check(identity, left, positions=1, files=1, remaining=2, where="part = 'a'")
    check(identity, left, positions=1, files=1, remaining=1, where="part is null")
    check(identity, left, positions=1, files=1)


def test_a_global_delete_reaches_every_spec(create: Create, version: int) -> None:
    """It was written when the table was not partitioned, and stays until every partition is done."""
    stream = create(SCHEMA, version)
    stream.append(rows(*PAIRS[:2]))
    with stream.table.update_spec() as update:
        update.add_field("part", IdentityTransform(), "p")
    stream.append(rows(*PAIRS[2:]))
    stream.delete_where_equal(ids(1), ["id"], spec_id=0)
    stream.append(rows((1, "a")))
    left = expected((2, "a"), (2, "b"), (2, None), (1, "a"))
    check(stream, left, positions=1, files=1, remaining=1, where="part = 'b'")
    check(stream, left, positions=2, files=2)
    assert {file.spec_id for file in stream.delete_files()} == {0, 1}


def test_a_spec_of_void_fields_is_none(create: Create, version: int) -> None:
    stream = create(SCHEMA, version, spec=by((2, VoidTransform())))
    stream.append(rows(*PAIRS))
    with stream.table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "b")
    stream.append(rows(*PAIRS))
    stream.delete_where_equal(ids(2), ["id"], spec_id=0)
    check(stream, expected(*PAIRS[::2], *PAIRS[::2]), positions=6)


def test_a_delete_of_one_spec_does_not_reach_another(create: Create, version: int) -> None:
    """The same values under another spec are another partition."""
    stream = create(SCHEMA, version, spec=by((2, IdentityTransform())))
    stream.append(rows((1, "a")))
    with stream.table.update_spec() as update:
        update.remove_field("p0")
        update.add_field("part", TruncateTransform(1), "t")
    stream.append(rows((1, "a")))
    stream.delete_where_equal(ids(1), ["id"], partition=Record("a"), spec_id=0)
    check(stream, expected((1, "a")), positions=1, files=1)
    (written,) = stream.delete_files()
    assert (written.spec_id, written.data_file.partition) == (0, Record("a"))


def test_transforms_and_historic_specs(create: Create, version: int) -> None:
    """What is written has the spec and the tuple of its data file."""
    stream = create(SCHEMA, version, spec=by((3, DayTransform()), (1, BucketTransform(3))))
    given = [(i, f"text {i}", NOON + datetime.timedelta(hours=i), DAY + datetime.timedelta(days=i)) for i in range(6)]
    stream.append(rows(*given))
    for remove, add in ((["p0", "p1"], ("ts", HourTransform())), (["f0"], ("part", TruncateTransform(6)))):
        with stream.table.update_spec() as update:
            for name in remove:
                update.remove_field(name)
            update.add_field(*add, f"f{len(remove) - 2}".replace("-1", "1"))
        stream.append(rows(*[(row[0] + 100, *row[1:]) for row in given]))
    gone = {2, 102}
    for spec_id in stream.table.specs():
        stream.delete_where_equal(
            rows(*given, *[(row[0] + 100, *row[1:]) for row in given]).take([2, 8]), ["id"], spec_id=spec_id
        )
    again = [(row[0] + 100, *row[1:]) for row in given]
    check(stream, [row for row in [*given, *again, *again] if row[0] not in gone], positions=3, files=3)
    assert {file.spec_id for file in stream.delete_files()} == set(stream.table.specs())


def test_granularity_of_partitions(create: Create) -> None:
    """One file for a partition where the table asks for that; a file of one data file says so."""
    stream = create(SCHEMA, spec=by((2, IdentityTransform())), properties={"write.delete.granularity": "partition"})
    for _ in range(3):
        stream.append(rows(*PAIRS))
    stream.append(rows((5, "c"), (6, "c")))
    stream.delete_where_equal(rows((1, "a"), (2, "b"), (5, "c")), ["id"])
    check(stream, expected(*[(2, "a"), (1, "b"), (1, None), (2, None)] * 3, (6, "c")), positions=7, files=3)
    referenced = {file.data_file.partition[0]: file.referenced_data_file is not None for file in stream.delete_files()}
    assert referenced == {"a": False, "b": False, "c": True}


def test_a_partition_column_that_files_leave_out(create: Create, version: int) -> None:
    """Its value comes from the partition tuple, in data files and in delete files."""
    stream = create(SCHEMA, version, spec=by((2, IdentityTransform()), (4, IdentityTransform())))
    given = [(1, "a"), (2, "a"), (1, "b"), (1, None)]
    stream.append(rows(*given), omit=["part", "day"])
    keys = rows((1, "a"), (1, None), (2, "b"))
    stream.delete_where_equal(keys.select(["id", "part", "day"]), ["id", "part", "day"])
    stream.upsert(rows((9, "b")), ["part"])
    check(stream, expected((2, "a"), (9, "b")), positions=3, files=3, rust=False)


@pytest.mark.parametrize("where", ["id = 1", "part ="])
def test_filters_that_select_no_partitions(identity: StreamTable, where: str) -> None:
    identity.delete_where_equal(ids(1), ["id"], partition=Record("a"))
    location = identity.table.metadata_location
    report = run(identity, where=where)
    assert report.status is Status.REFUSED
    assert report.reason
    assert where in report.reason
    assert identity.table.metadata_location == location
