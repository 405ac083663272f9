"""Plans of real tables: which units, what they hold, what retires, and what is refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestFile
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    UUIDType,
)

from producer.common.errors import Corrupt, Reason, Refused
from producer.iceberg.catalog import open_table
from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.iceberg.manifest_reader import read_manifest_list
from producer.model.job import Operation, Report, Request, Status
from producer.planning.planner import check_request, plan
from producer.planning.units import PlanWithUnits
from tasks.testing import RowDelta, StreamTable
from tests.support.livefiles import spec

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "p", StringType(), required=False),
    NestedField(3, "tags", ListType(4, StringType()), required=False),
)
BY_P = spec(0, (2, IdentityTransform(), "p"))
LARGE = 1 << 40


def rows(*ids: int, p: str | None = "a") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "p": pa.array([p] * len(ids), pa.string())})


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[InMemoryCatalog]:
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}")
    yield catalog
    catalog.close()


@pytest.fixture
def create(catalog: InMemoryCatalog) -> Callable[..., StreamTable]:
    def make(name: str = "db.t", **options: Any) -> StreamTable:
        return StreamTable.create(catalog, name, SCHEMA, **{"spec": BY_P, **options})

    return make


@pytest.fixture
def stream(create: Callable[..., StreamTable]) -> StreamTable:
    """An empty table of version 2, partitioned by ``p``."""
    return create()


def planned(
    stream: StreamTable, unit_bytes: int = LARGE, only: Iterable[str] | None = None, **asked: Any
) -> PlanWithUnits:
    request = Request.new(stream.identifier, **asked)
    return plan(stream.table, request, unit_bytes=unit_bytes, only=None if only is None else frozenset(only), round_=0)


def labels(found: PlanWithUnits) -> list[str]:
    return [unit.header.label for unit in found.units]


def contents(found: PlanWithUnits) -> list[set[str]]:
    """Paths of the data files of each unit."""
    return [{file.path for file in unit.data} for unit in found.units]


def data(stream: StreamTable, *where: str | None) -> list[LiveFile]:
    return [file for file in stream.data_files() if not where or file.partition[0] in where]


def deletes(stream: StreamTable) -> list[str]:
    """Paths of the equality deletes, oldest first."""
    return [file.path for file in stream.delete_files() if file.content == DataFileContent.EQUALITY_DELETES]


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def manifests(stream: StreamTable) -> list[ManifestFile]:
    snapshot = stream.table.current_snapshot()
    assert snapshot is not None
    return read_manifest_list(stream.table.io, snapshot)


class TestUnits:
    """What a unit holds."""

    def test_everything_that_a_conversion_needs(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, p=None))
        stream.append(rows(7, p="untouched"))
        stream.delete_where_equal(pa.concat_tables([rows(2), rows(4, 5, p=None)]), ["p", "id"])
        before = {path for path in local(stream.table.location()).rglob("*") if path.is_file()}
        found = planned(stream)
        assert {path for path in local(stream.table.location()).rglob("*") if path.is_file()} == before
        [unit] = found.units
        a, null, _ = stream.data_files()
        assert unit.header.label == "p=a +1 more"
        assert (unit.header.files, unit.header.delete_files, unit.header.rows, unit.header.delete_rows) == (2, 2, 5, 3)
        assert [scope.label for scope in unit.scopes] == ["p=a", "p=null"]
        assert [scope.values for scope in unit.scopes] == [(b"a".hex(),), (None,)]
        assert [(file.path, file.scope, file.sequence_number, file.records) for file in unit.data] == [
            (a.path, 0, 1, 3),
            (null.path, 1, 2, 2),
        ]
        assert [(file.equality_ids, file.scope, file.sequence_number) for file in unit.deletes] == [
            ((1, 2), 0, 4),
            ((1, 2), 1, 4),
        ]
        assert unit.positions == ()
        assert found.plan.units == (unit.header,)
        assert {r.path: (r.units, r.complete) for r in found.plan.retirements} == dict.fromkeys(
            deletes(stream), ((0,), True)
        )

    def test_what_the_commit_is_checked_against(self, stream: StreamTable) -> None:
        stream.append(rows(1))
        stream.delete_where_equal(rows(1), ["id"])
        table = stream.table
        head = table.current_snapshot()
        assert head is not None
        before = Report(job="j", table="db.t", status=Status.COMMITTING)
        request = Request.new("db.t")
        found = plan(table, request, unit_bytes=LARGE, round_=2, before=before).plan
        assert (found.table_uuid, found.location) == (str(table.metadata.table_uuid), table.location())
        assert (found.format_version, found.snapshot_id, found.sequence_number) == (2, head.snapshot_id, 2)
        assert (found.round, found.before, found.request) == (2, before, request)

    def test_only_what_is_older_and_may_match(self, stream: StreamTable) -> None:
        stream.append(rows(1, 5))
        stream.append(rows(8, 9))
        stream.append(rows(1, 5, p="b"))
        stream.delete_where_equal(rows(2), ["id"])
        stream.append(rows(2))
        assert contents(planned(stream)) == [{data(stream)[0].path}]

    def test_deletes_that_are_older_stay_out(self, stream: StreamTable) -> None:
        stream.append(rows(1))
        stream.delete_where_equal(rows(1), ["id"])
        stream.append(rows(1))
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        assert {file.sequence_number for file in unit.deletes} == {2, 4}
        stream.remove_files([data(stream)[0].path])
        [unit] = planned(stream).units
        assert [file.sequence_number for file in unit.deletes] == [4]
        assert {r.path: r.units for r in planned(stream).plan.retirements} == {
            deletes(stream)[0]: (),
            deletes(stream)[1]: (0,),
        }

    def test_position_deletes_that_are_live(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        stream.append(rows(1, 3))
        stream.append(rows(1, 3, p="b"))
        first, second, other = stream.data_files()
        stream.delete_positions({first.path: [1]})
        stream.delete_positions({first.path: [1], second.path: [1]}, by_partition=True)
        stream.delete_positions({other.path: [0]}, by_partition=True)
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        assert [(file.referenced, file.scope, file.sequence_number) for file in unit.positions] == [
            (None, 0, 5),
            (first.path, 0, 4),
        ]

    def test_a_position_delete_of_another_partition_is_no_matter_what_it_names(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        [file] = stream.data_files()
        content = DataFileContent.POSITION_DELETES
        stream.commit(RowDelta([odd(stream, "s3://x/odd", "b", content, referenced_data_file=file.path)]))
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        assert unit.positions == ()

    def test_vectors_that_are_live_displace_them(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        stream.append(rows(1, 2, 3))
        [file] = stream.data_files()
        stream.delete_positions({file.path: [1]})
        stream.upgrade()
        stream.delete_vector({file.path: [1, 2]})
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        [vector] = [delete for delete in stream.delete_files() if delete.is_vector]
        assert unit.data[0].vector is not None
        assert unit.data[0].vector.model_dump() == {
            "path": vector.path,
            "offset": vector.content_offset,
            "size": vector.content_size,
            "cardinality": 2,
        }
        assert unit.positions == ()

    def test_historic_specs_keep_their_own(self, create: Callable[..., StreamTable]) -> None:
        stream = create(spec=spec(0, (1, BucketTransform(1), "b")))
        stream.append(rows(1, 2))
        with stream.table.update_spec() as update:
            update.remove_field("b")
            update.add_identity("p")
        stream.append(rows(1, 2))
        stream.delete_where_equal(rows(1), ["id"], partition=Record(0), spec_id=0)
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        assert [(scope.spec_id, scope.label) for scope in unit.scopes] == [(0, "b=0"), (1, "p=a")]
        assert {(file.scope, unit.deletes[index].scope) for index, file in enumerate(unit.data)} == {(0, 0), (1, 1)}


class TestPartitionsThatLookAlike:
    """Null and the text 'null' have one label in paths; nor do values of partitions always compare."""

    def test_null_and_its_name(self, stream: StreamTable) -> None:
        for p in ("null", None, "nul", "", "a/b=c", "ü"):
            stream.append(rows(1, 2, p=p))
            stream.delete_where_equal(rows(1, p=p), ["id"])
        found = planned(stream, 1)
        assert labels(found) == ["p=", "p=%C3%BC", "p=a%2Fb%3Dc", "p=nul", "p=null", "p='null'"]
        values = [unit.scopes[0].values[0] for unit in found.units]
        assert values == ["", "ü".encode().hex(), b"a/b=c".hex(), b"nul".hex(), None, b"null".hex()]
        assert all(len(unit.data) == len(unit.deletes) == len(unit.scopes) == 1 for unit in found.units)
        [bundled] = planned(stream).units
        assert len(bundled.scopes) == len(bundled.data) == 6

    def test_a_filter_selects_one_of_them(self, stream: StreamTable) -> None:
        for p in ("null", None):
            stream.append(rows(1, p=p))
            stream.delete_where_equal(rows(1, p=p), ["id"])
        assert labels(planned(stream, 1, where="p = 'null'")) == ["p='null'"]
        assert labels(planned(stream, 1, where="p is null")) == ["p=null"]

    @pytest.mark.parametrize(
        ("type_", "values"),
        [
            (DoubleType(), [float("nan"), 0.0, -0.0, None, 1.5]),
            (UUIDType(), [UUID(int=1).bytes, UUID(int=1 << 127).bytes, None]),
            (DecimalType(9, 2), [Decimal("1.50"), Decimal("-1.50"), None]),
            (BinaryType(), [b"", b"null", None]),
            (BooleanType(), [True, False, None]),
            (DateType(), [datetime.date(1969, 12, 31), datetime.date(2024, 5, 1), None]),
        ],
        ids=lambda given: str(given) if isinstance(given, PrimitiveType) else "",
    )
    @pytest.mark.parametrize("operation", list(Operation))
    def test_of_every_type(
        self, create: Callable[..., StreamTable], type_: PrimitiveType, values: list[Any], operation: Operation
    ) -> None:
        """Under two specs, so that a compaction has them in one group."""
        schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", type_, required=False))
        stream = StreamTable.create(create().catalog, "db.u", schema, spec=BY_P)
        arrow = schema_to_pyarrow(Schema(schema.fields[1])).field(0).type
        for value in values:
            found = pa.table({"id": pa.array([1, 2], pa.int64()), "p": pa.array([value] * 2, arrow)})
            stream.append(found)
            stream.delete_where_equal(found.slice(0, 1), ["id"])
        assert len(planned(stream, 1).units) == len(values)
        with stream.table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")
        options = {"rewrite-all": "true"} if operation is Operation.COMPACT else {}
        found = planned(stream, operation=operation, options=options)
        [unit] = found.units
        assert len(unit.scopes) == len(unit.data) == len(values)
        assert planned(stream, operation=operation, options=options).units == found.units


class TestSizes:
    """Cost is the bytes of the key columns and the deletes; a unit holds the limit and no more."""

    def test_cost_is_what_will_be_read(self, stream: StreamTable) -> None:
        stream.append(rows(*range(500)))
        stream.delete_where_equal(rows(1), ["id"])
        [file], [delete] = stream.data_files(), stream.delete_files()
        [unit] = planned(stream).units
        assert unit.header.cost == file.data_file.column_sizes[1] + delete.size

    def test_a_file_without_sizes_counts_as_a_whole(self, stream: StreamTable) -> None:
        stream.append(rows(*range(500)))
        stream.commit(RowDelta([odd(stream, "s3://x/bare", "a", DataFileContent.DATA, file_size_in_bytes=12345)]))
        stream.delete_where_equal(rows(1), ["id"])
        file = stream.data_files()[0]
        [delete] = stream.delete_files()
        [unit] = planned(stream).units
        assert unit.header.cost == file.data_file.column_sizes[1] + 12345 + delete.size

    def test_partitions_are_bundled_up_to_the_limit(self, stream: StreamTable) -> None:
        names = ["a", "b", "c"]
        stream.append(pa.concat_tables([rows(1, 2, p=p) for p in names]))
        stream.delete_where_equal(pa.concat_tables([rows(1, p=p) for p in names]), ["id"])
        [whole] = planned(stream).units
        assert whole.header.label == "p=a +2 more"
        costs = [unit.header.cost for unit in planned(stream, 1).units]
        assert whole.header.cost == sum(costs)
        assert labels(planned(stream, sum(costs))) == ["p=a +2 more"]
        assert labels(planned(stream, sum(costs) - 1)) == ["p=a +1 more", "p=c"]
        assert labels(planned(stream, sum(costs[:2]) - 1)) == ["p=a", "p=b", "p=c"]
        assert labels(planned(stream, 1)) == ["p=a", "p=b", "p=c"]

    def test_a_partition_above_the_limit_is_cut(self, stream: StreamTable) -> None:
        for start in range(0, 3000, 1000):
            stream.append(rows(*range(start, start + 1000)))
        stream.delete_where_equal(rows(0, 2999), ["id"])
        files = sorted(stream.data_files(), key=lambda file: file.path)
        sizes = [file.data_file.column_sizes[1] for file in files]
        [delete] = stream.delete_files()
        whole = sum(sizes) + delete.size
        assert labels(planned(stream, whole)) == ["p=a"]
        cut = planned(stream, whole - 1)
        assert labels(cut) == ["p=a 1/2", "p=a 2/2"]
        assert contents(cut) == [{file.path for file in files[:2]}, {files[2].path}]
        assert [unit.header.cost for unit in cut.units] == [sum(sizes[:2]) + delete.size, sizes[2] + delete.size]
        assert labels(planned(stream, max(sizes) + delete.size)) == ["p=a 1/3", "p=a 2/3", "p=a 3/3"]
        assert [unit.header.delete_files for unit in cut.units] == [1, 1], "each reads the deletes again"
        [retirement] = cut.plan.retirements
        assert retirement.units == (0, 1)

    def test_plans_of_one_table_are_equal(self, stream: StreamTable) -> None:
        for p in ("b", "a", None, "c"):
            stream.append(rows(1, 2, p=p))
            stream.delete_where_equal(rows(1, p=p), ["id"])
        request = Request.new("db.t")
        first, second = (plan(stream.table, request, unit_bytes=1) for _ in range(2))
        assert first.units == second.units
        assert first.plan.model_copy(update={"token": second.plan.token}) == second.plan
        assert labels(first) == ["p=a", "p=b", "p=c", "p=null"]


def odd(stream: StreamTable, path: str, p: str, content: DataFileContent, **fields: Any) -> NewFile:
    """A file that is in the table and nowhere else."""
    given: dict[str, Any] = {"file_format": FileFormat.PARQUET, "record_count": 3, "file_size_in_bytes": 9, **fields}
    record = new_data_file(content=content, file_path=path, partition=Record(p), **given)
    return NewFile(record, stream.table.spec().spec_id)


class TestRefusedUnits:
    """What cannot be read is refused by name before anything is written, and the rest goes on."""

    @pytest.mark.parametrize(
        ("file", "says"),
        [
            ({"file_format": FileFormat.ORC}, "is ORC: only Parquet"),
            ({"file_format": FileFormat.AVRO}, "is AVRO: only Parquet"),
            ({"key_metadata": b"secret"}, "is encrypted"),
        ],
        ids=["orc", "avro", "encrypted"],
    )
    def test_a_data_file(self, stream: StreamTable, file: dict[str, Any], says: str) -> None:
        stream.append(rows(1, 2))
        stream.append(rows(1, 2, p="b"))
        stream.commit(RowDelta([odd(stream, "s3://x/odd", "a", DataFileContent.DATA, **file)]))
        stream.delete_where_equal(pa.concat_tables([rows(1), rows(1, p="b")]), ["id"])
        found = planned(stream)
        refused, others = sorted(found.units, key=lambda unit: unit.header.refused is None)
        assert refused.header.refused is not None
        assert refused.header.refused.startswith(f"s3://x/odd {says}")
        assert contents(found)[refused.header.number] == {"s3://x/odd"}
        assert {file.path for file in others.data} == {f.path for f in stream.data_files() if f.path != "s3://x/odd"}
        both = {refused.header.number, others.header.number}
        assert {r.scope.label: set(r.units) for r in found.plan.retirements if r.scope} == {
            "p=a": both,
            "p=b": {others.header.number},
        }, "the delete of the partition stays, since one of its units will not be done"

    @pytest.mark.parametrize("content", [DataFileContent.EQUALITY_DELETES, DataFileContent.POSITION_DELETES])
    def test_a_delete_file(self, stream: StreamTable, content: DataFileContent) -> None:
        stream.append(rows(1, 2))
        stream.append(rows(1, 2, p="b"))
        ids = [1] if content == DataFileContent.EQUALITY_DELETES else None
        stream.commit(
            RowDelta([odd(stream, "s3://x/odd", "a", content, file_format=FileFormat.AVRO, equality_ids=ids)])
        )
        stream.delete_where_equal(pa.concat_tables([rows(1), rows(1, p="b")]), ["id"])
        found = planned(stream)
        assert [(unit.header.label, unit.header.refused) for unit in found.units] == [
            ("p=a", "s3://x/odd is AVRO: only Parquet is read so far."),
            ("p=b", None),
        ]

    def test_a_delete_file_that_is_older_than_the_data_harms_nobody(self, stream: StreamTable) -> None:
        orc = {"file_format": FileFormat.ORC, "equality_ids": [1]}
        stream.commit(RowDelta([odd(stream, "s3://x/odd", "a", DataFileContent.EQUALITY_DELETES, **orc)]))
        stream.append(rows(1, 2))
        stream.delete_where_equal(rows(1), ["id"])
        assert [unit.header.refused for unit in planned(stream).units] == [None]

    def test_keys_of_a_list(self, stream: StreamTable) -> None:
        stream.append(rows(1))
        bad = odd(stream, "s3://x/odd", "a", DataFileContent.EQUALITY_DELETES, equality_ids=[3, 1])
        stream.commit(RowDelta([bad]))
        [unit] = planned(stream).units
        assert unit.header.refused is not None
        assert unit.header.refused.startswith("s3://x/odd has equality ids [1, 3]: ")

    def test_several_files_are_counted(self, stream: StreamTable) -> None:
        orc = {"file_format": FileFormat.ORC}
        stream.commit(RowDelta([odd(stream, f"s3://x/odd{n}", "a", DataFileContent.DATA, **orc) for n in range(3)]))
        stream.delete_where_equal(rows(1), ["id"])
        [unit] = planned(stream).units
        assert unit.header.refused == "s3://x/odd0 is ORC: only Parquet is read so far. (and 2 more files)"


class TestRetirements:
    """Which equality deletes may leave, and with which units."""

    def test_one_that_reaches_nothing_leaves_without_a_unit(self, stream: StreamTable) -> None:
        stream.delete_where_equal(rows(1), ["id"])
        stream.append(rows(1))
        found = planned(stream)
        assert found.units == ()
        assert not found.plan.empty
        assert [(r.path, r.units, r.complete) for r in found.plan.retirements] == [(deletes(stream)[0], (), True)]

    def test_one_that_matches_nothing_leaves_without_a_unit(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        stream.delete_where_equal(rows(99), ["id"])
        found = planned(stream)
        assert (found.units, len(found.plan.retirements), found.plan.empty) == ((), 1, False)

    def test_each_waits_for_the_units_that_apply_it(self, stream: StreamTable) -> None:
        stream.append(rows(*range(20_000)))
        stream.delete_where_equal(rows(5), ["id"])
        stream.append(rows(*range(20_000)))
        stream.delete_where_equal(rows(6), ["id"])
        old, new = stream.data_files()
        found = planned(stream, 1)
        numbers = {next(iter(paths)): number for number, paths in enumerate(contents(found))}
        assert {r.path: set(r.units) for r in found.plan.retirements} == {
            deletes(stream)[0]: {numbers[old.path]},
            deletes(stream)[1]: {numbers[old.path], numbers[new.path]},
        }

    def test_a_later_round_does_what_is_left(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        stream.append(rows(1, 2, p="b"))
        stream.delete_where_equal(rows(1), ["id"])
        stream.delete_where_equal(rows(1, p="b"), ["id"])
        first, second = deletes(stream)
        assert labels(planned(stream)) == ["p=a +1 more"]
        found = planned(stream, only=[second])
        assert labels(found) == ["p=b"]
        assert [r.path for r in found.plan.retirements] == [second]
        assert [file.path for file in found.units[0].deletes] == [second]
        gone = planned(stream, only=["gone"])
        assert (gone.plan.empty, gone.plan.nothing) == (True, "there are no equality deletes")
        assert first not in {r.path for r in found.plan.retirements}


class TestGlobalDeletesAndFilters:
    """A global delete leaves only when no data file that it reaches was left out."""

    @pytest.fixture
    def stream(self, create: Callable[..., StreamTable]) -> StreamTable:
        """A table that was not partitioned first; 1 is deleted everywhere, 2 in partition a."""
        stream = create(spec=spec(0))
        with stream.table.update_spec() as update:
            update.add_identity("p")
        stream.append(rows(1, 2))
        stream.append(rows(1, 2, p="b"))
        stream.delete_where_equal(rows(1), ["id"], spec_id=0)
        stream.delete_where_equal(rows(2), ["id"])
        return stream

    def test_without_a_filter_both_leave(self, stream: StreamTable) -> None:
        assert {r.scope is None: r.complete for r in planned(stream).plan.retirements} == {True: True, False: True}

    def test_with_one_the_global_one_is_applied_and_stays(self, stream: StreamTable) -> None:
        found = planned(stream, where="p = 'a'")
        assert labels(found) == ["p=a"]
        assert len(found.units[0].deletes) == 2
        assert {r.scope is None: (r.units, r.complete) for r in found.plan.retirements} == {
            True: ((0,), False),
            False: ((0,), True),
        }

    def test_it_leaves_when_what_is_left_out_is_newer(self, stream: StreamTable) -> None:
        stream.remove_files([file.path for file in data(stream, "b")])
        stream.append(rows(1, p="b"))
        assert [r.complete for r in planned(stream, where="p = 'a'").plan.retirements] == [True, True]

    def test_each_of_several_leaves_by_its_own_age(self, stream: StreamTable) -> None:
        """What is left out is as old as the second one, and older than the third."""
        stream.remove_files([file.path for file in data(stream, "b")])
        both = pa.concat_tables([rows(1, p="b"), rows(1)])
        data_files = stream.write_data(both)
        stream.commit(RowDelta([*data_files, *stream.write_equality_deletes(rows(1), ["id"], spec_id=0)]))
        stream.delete_where_equal(rows(1), ["id"], spec_id=0)
        found = planned(stream, where="p = 'a'").plan
        assert [r.complete for r in found.retirements if r.scope is None] == [True, True, False]

    def test_the_oldest_that_is_left_out_counts_wherever_it_is_read(self, create: Callable[..., StreamTable]) -> None:
        stream = create("db.other", spec=spec(0))
        with stream.table.update_spec() as update:
            update.add_identity("p")
        stream.append(pa.concat_tables([rows(1), rows(1, p="b"), rows(1, p="c")]))
        stream.delete_where_equal(rows(1), ["id"], spec_id=0)
        stream.append(rows(1, p="b"))
        stream.delete_where_equal(rows(1), ["id"], spec_id=0)
        stream.remove_files([file.path for file in data(stream, "c")])  # its manifest is the first one now
        found = planned(stream, where="p = 'a'").plan
        assert [r.complete for r in found.retirements] == [False, False]

    def test_deletes_of_other_partitions_are_none_of_its_business(self, stream: StreamTable) -> None:
        found = planned(stream, where="p = 'b'")
        assert labels(found) == ["p=b"]
        assert [(r.scope is None, r.complete) for r in found.plan.retirements] == [(True, False)]

    def test_a_filter_that_selects_nothing(self, stream: StreamTable) -> None:
        found = planned(stream, where="p = 'nowhere'").plan
        assert (found.empty, found.units, found.retirements) == (True, (), ())
        assert found.nothing == "no partition with equality deletes is selected"

    def test_a_delete_that_reaches_nothing_leaves_when_its_partition_is_selected(self, stream: StreamTable) -> None:
        stream.delete_where_equal(rows(1, p="c"), ["id"])
        assert len(planned(stream, where="p = 'c'").plan.retirements) == 1
        assert len(planned(stream, where="p = 'b'").plan.retirements) == 1

    def test_a_filter_that_cuts_a_partition_is_refused(self, create: Callable[..., StreamTable]) -> None:
        other = create("db.other", spec=spec(0, (1, BucketTransform(2), "b")))
        other.append(rows(*range(8)))
        other.delete_where_equal(rows(*range(8)), ["id"])
        with pytest.raises(Refused, match="only a part of partition b="):
            planned(other, where="id = 1")


class TestManifests:
    """Only manifests that may hold what a delete reaches are read, and one that cannot be is named."""

    def test_data_that_is_newer_is_not_read(self, stream: StreamTable) -> None:
        stream.append(rows(1))
        stream.delete_where_equal(rows(1), ["id"])
        stream.append(rows(1))
        stream.upsert(rows(1), ["id"])
        newest = max(manifests(stream), key=lambda m: (m.content == ManifestContent.DATA, m.sequence_number))
        assert newest.min_sequence_number == 4
        local(newest.manifest_path).unlink()
        assert len(contents(planned(stream))[0]) == 2

    def test_no_data_manifest_is_read_without_equality_deletes(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        stream.delete_positions({stream.data_files()[0].path: [0]})
        for manifest in manifests(stream):
            if manifest.content == ManifestContent.DATA:
                local(manifest.manifest_path).unlink()
        assert planned(stream).plan.nothing == "there are no equality deletes"

    @pytest.mark.parametrize("content", [ManifestContent.DATA, ManifestContent.DELETES], ids=["data", "deletes"])
    @pytest.mark.parametrize("how", ["missing", "empty", "cut", "text"])
    def test_a_manifest_that_cannot_be_read_is_named(
        self, stream: StreamTable, content: ManifestContent, how: str
    ) -> None:
        stream.append(rows(1))
        stream.delete_where_equal(rows(1), ["id"])
        [broken] = [m.manifest_path for m in manifests(stream) if m.content == content]
        spoil(local(broken), how)
        with pytest.raises(Corrupt, match=f"The manifest {broken} (is missing|cannot be read)"):
            planned(stream)

    @pytest.mark.parametrize("how", ["missing", "empty", "cut", "text"])
    def test_a_manifest_list_that_cannot_be_read_is_named(self, stream: StreamTable, how: str) -> None:
        stream.append(rows(1))
        snapshot = stream.table.current_snapshot()
        assert snapshot is not None
        spoil(local(snapshot.manifest_list), how)
        with pytest.raises(Corrupt, match=f"The manifest list {snapshot.manifest_list} (is missing|cannot be read)"):
            planned(stream)

    def test_two_vectors_for_one_file_are_corrupt(self, create: Callable[..., StreamTable]) -> None:
        stream = create(format_version=3)
        stream.append(rows(1, 2))
        [file] = stream.data_files()
        stream.delete_where_equal(rows(1), ["id"])
        one, two = (stream.write_vectors({file.path: [n]}).added for n in (0, 1))
        stream.commit(RowDelta([*one, *two]))
        with pytest.raises(Corrupt, match=f"the second one for {file.path}"):
            planned(stream)


def spoil(path: Path, how: str) -> None:
    contents = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": contents[:-40], "text": b"nothing of the kind"}[how])


class TestTables:
    """What can be said before any manifest is read."""

    def test_an_empty_table_has_nothing_to_do(self, stream: StreamTable) -> None:
        found = planned(stream).plan
        assert (found.empty, found.nothing, found.snapshot_id) == (True, "the table has no snapshot", None)

    def test_a_table_without_deletes_has_nothing_to_do(self, stream: StreamTable) -> None:
        stream.append(rows(1))
        assert planned(stream).plan.nothing == "there are no equality deletes"

    def test_version_1_says_so(self, create: Callable[..., StreamTable]) -> None:
        stream = create(format_version=1)
        assert planned(stream).plan.nothing == "a table of format version 1 has no row-level deletes"
        assert (
            check_request(stream.table, Request.new("db.t")) == "a table of format version 1 has no row-level deletes"
        )

    def test_version_4_is_refused(
        self, stream: StreamTable, catalog: InMemoryCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = local(stream.table.metadata_location)
        path.write_text(json.dumps({**json.loads(path.read_text()), "format-version": 4}))
        monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
        with pytest.raises(Refused, match=r"^db\.t has a format version that is not supported") as refused:
            open_table("default", "db.t")
        assert refused.value.reason == Reason.FORMAT_VERSION

    def test_a_branch_is_planned_from_its_own_head(self, stream: StreamTable) -> None:
        stream.append(rows(1, 2))
        stream.commit(RowDelta(stream.write_equality_deletes(rows(1), ["id"])), branch="audit")
        stream.append(rows(3))
        assert planned(stream).plan.nothing == "there are no equality deletes"
        found = planned(stream, branch="audit").plan
        head = stream.table.metadata.refs["audit"].snapshot_id
        assert (found.snapshot_id, found.sequence_number, len(found.units)) == (head, 2, 1)

    @pytest.mark.parametrize("empty", [True, False])
    def test_a_branch_that_does_not_exist_is_refused(self, stream: StreamTable, empty: bool) -> None:
        if not empty:
            stream.append(rows(1))
            stream.append(rows(2), branch="audit")
        with pytest.raises(Refused, match="There is no branch 'nope'; the table has") as refused:
            planned(stream, branch="nope")
        assert refused.value.reason == Reason.UNKNOWN_BRANCH
        assert ("audit, main" in str(refused.value)) is not empty

    def test_a_tag_is_refused(self, stream: StreamTable) -> None:
        first = stream.append(rows(1))
        with stream.table.manage_snapshots() as refs:
            refs.create_tag(first, "v1")
        with pytest.raises(Refused, match="'v1' is a tag: only branches can be committed to") as refused:
            planned(stream, branch="v1")
        assert refused.value.reason == Reason.UNKNOWN_BRANCH

    def test_a_branch_without_its_snapshot_is_corrupt(self, stream: StreamTable) -> None:
        """It is no empty table."""
        stream.append(rows(1))
        path = Path(stream.table.metadata_location.removeprefix("file://"))
        metadata = json.loads(path.read_text())
        metadata["refs"]["main"]["snapshot-id"] = metadata["current-snapshot-id"] = 5
        path.write_text(json.dumps(metadata))
        with pytest.raises(Corrupt, match="lacks snapshot 5, the head of branch 'main'"):
            planned(stream)

    def test_a_filter_is_checked_where_there_is_nothing_to_do(self, stream: StreamTable) -> None:
        with pytest.raises(Refused, match="does not partition"):
            check_request(stream.table, Request.new("db.t", where="id = 1"))
