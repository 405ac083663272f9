"""Plans of compactions: which files are rewritten, together with which others, and why or why not."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from producer.common.errors import Reason, Refused
from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.model.job import Operation, Request
from producer.model.plan import Unit
from producer.planning.compact.file_groups import RewriteCandidate, RewriteFileGroup, RewriteReason, qualifies, split
from producer.planning.compact.options import Options
from producer.planning.compact.planner import expected_files
from producer.planning.compact.rewrite_options import resolve
from producer.planning.planner import check_request, plan
from producer.planning.units import PlanWithUnits
from tasks.testing import RowDelta, StreamTable
from tests.support.livefiles import live, metadata, spec

SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
BY_P = spec(0, (2, IdentityTransform(), "p"))
LARGE = 1 << 60
#: 75, 100 and 180 bytes.
SIZES = {"target-file-size-bytes": "100"}

_NUMBERS = count()


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


def entry(size: int, p: str | None = "a", *, spec_id: int = 0, path: str = "", **fields: Any) -> NewFile:
    """A data file of 100 rows that is in the table and nowhere else."""
    given = {
        "content": DataFileContent.DATA,
        "file_format": FileFormat.PARQUET,
        "file_path": path or f"s3://x/f{next(_NUMBERS):06}",
        "record_count": 100,
        "file_size_in_bytes": size,
        "partition": Record(p) if p is not None else Record(),
        **fields,
    }
    return NewFile(new_data_file(**given), spec_id, given.pop("sequence_number", None))


def delete(p: str | None, content: DataFileContent, rows: int = 1, **fields: Any) -> NewFile:
    return entry(fields.pop("size", 7), p, content=content, record_count=rows, **fields)


def equality(p: str | None = "a", rows: int = 1, **fields: Any) -> NewFile:
    return delete(p, DataFileContent.EQUALITY_DELETES, rows, equality_ids=[1], **fields)


def positions(target: LiveFile | NewFile | None, rows: int, p: str | None = "a", **fields: Any) -> NewFile:
    """A position delete file of one data file, or of a whole partition."""
    path = target.data_file.file_path if target else None
    return delete(p, DataFileContent.POSITION_DELETES, rows, referenced_data_file=path, **fields)


def vector(target: LiveFile, rows: int, p: str = "a") -> NewFile:
    fields = {"file_format": FileFormat.PUFFIN, "content_offset": 4, "content_size_in_bytes": 40}
    return positions(target, rows, p, size=1000, **fields)


def add(stream: StreamTable, *files: NewFile) -> list[LiveFile]:
    """Commit files; those of them that hold data, by size."""
    stream.commit(RowDelta(files))
    paths = [file.data_file.file_path for file in files]
    return sorted((f for f in stream.data_files() if f.path in paths), key=lambda file: paths.index(file.path))


def planned(
    stream: StreamTable,
    unit_bytes: int = LARGE,
    only: Iterable[str] | None = None,
    where: str | None = None,
    **options: object,
) -> PlanWithUnits:
    asked = SIZES | {name.replace("_", "-"): str(value) for name, value in options.items()}
    request = Request.new(stream.identifier, operation=Operation.COMPACT, where=where, options=asked)
    return plan(stream.table, request, unit_bytes=unit_bytes, only=None if only is None else frozenset(only))


def units(stream: StreamTable, *arguments: Any, **options: Any) -> tuple[Unit, ...]:
    return planned(stream, *arguments, **options).units


def contents(found: PlanWithUnits | tuple[Unit, ...]) -> list[set[str]]:
    """Paths of the data files of each unit."""
    return [{f.path for f in unit.data} for unit in (found.units if isinstance(found, PlanWithUnits) else found)]


def nothing(stream: StreamTable, **options: Any) -> str:
    """Why nothing is selected."""
    found = planned(stream, **options)
    assert found.plan.empty
    assert found.units == ()
    assert found.plan.nothing is not None
    return found.plan.nothing


class TestSizes:
    """A file of 75 % to 180 % of the target is well."""

    @pytest.mark.parametrize(("size", "why"), [(181, "1 file above 180 bytes"), (180, None), (75, None)])
    def test_a_file_that_is_too_large_is_split(self, stream: StreamTable, size: int, why: str | None) -> None:
        add(stream, entry(size))
        assert [unit.header.why for unit in units(stream)] == ([why] if why else [])

    @pytest.mark.parametrize(("size", "why"), [(74, "5 small files"), (75, None)])
    def test_files_that_are_too_small_are_merged(self, stream: StreamTable, size: int, why: str | None) -> None:
        add(stream, *(entry(size) for _ in range(5)))
        assert [unit.header.why for unit in units(stream)] == ([why] if why else [])

    def test_a_single_row_cannot_be_split(self, stream: StreamTable) -> None:
        add(stream, entry(500, record_count=1))
        assert nothing(stream) == "none of 1 data file is below 75 bytes or above 180 bytes, or has many deletes"

    def test_files_that_are_well_stay_out_of_the_group(self, stream: StreamTable) -> None:
        files = add(stream, *(entry(10) for _ in range(5)), entry(100), entry(75), entry(180))
        assert contents(planned(stream)) == [{file.path for file in files[:5]}]

    def test_limits_of_its_own(self, stream: StreamTable) -> None:
        add(stream, entry(50), entry(150))
        assert not units(stream, min_file_size_bytes=50, max_file_size_bytes=150)
        assert len(units(stream, min_file_size_bytes=0, max_file_size_bytes=149)) == 1


class TestGroups:
    """Which files of a partition are worth it together."""

    def test_four_small_files_are_too_few(self, stream: StreamTable) -> None:
        add(stream, *(entry(10) for _ in range(4)))
        assert nothing(stream) == (
            "no group qualifies: 4 small files in 1 partition, 5 are needed in one, or more than 100 bytes"
        )
        assert len(units(stream, min_input_files=4)) == 1

    def test_partitions_count_for_themselves(self, stream: StreamTable) -> None:
        add(stream, *(entry(10, p) for p in ("a", "a", "b")))
        assert nothing(stream).startswith("no group qualifies: 3 small files in 2 partitions, 5 are needed in one")

    @pytest.mark.parametrize(("sizes", "selected"), [((50, 50), False), ((50, 51), True), ((74,), False)])
    def test_enough_bytes_for_a_file(self, stream: StreamTable, sizes: tuple[int, ...], selected: bool) -> None:
        add(stream, *(entry(size) for size in sizes))
        assert bool(units(stream)) is selected

    def test_one_file_is_not_rewritten_for_its_size(self, stream: StreamTable) -> None:
        add(stream, entry(10))
        assert not units(stream, min_input_files=1)

    def test_a_merge_that_makes_no_fewer_files_is_none(self, stream: StreamTable) -> None:
        """No number of files is within these limits: without that rule it would be rewritten for ever."""
        narrow = {"min_file_size_bytes": 90, "max_file_size_bytes": 110}
        add(stream, entry(65), entry(65))
        assert not units(stream, min_input_files=2, **narrow)
        add(stream, entry(10))
        assert len(units(stream, min_input_files=2, **narrow)) == 1

    def test_rewrite_all_takes_everything(self, stream: StreamTable) -> None:
        add(stream, entry(100), entry(100, "b"))
        [unit] = units(stream, rewrite_all="true")
        assert (unit.header.why, unit.header.label) == ("2 well-sized files", "p=a +1 more")
        assert len(units(stream, tier="full")) == 1

    def test_large_partitions_are_cut(self, stream: StreamTable) -> None:
        files = add(stream, *(entry(10) for _ in range(20)))
        assert len(units(stream)) == 1
        found = units(stream, 1, max_file_group_size_bytes=100)
        assert contents(found) == [{f.path for f in files[:10]}, {f.path for f in files[10:]}]
        assert [unit.header.label for unit in found] == ["p=a 1/2", "p=a 2/2"]
        assert [len(group) for group in contents(units(stream, 1, max_file_group_size_bytes=99))] == [7, 7, 6]

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 200))
    def test_cuts_are_even_and_hold_each_file_once(self, sizes: list[int], limit: int) -> None:
        made = tuple(
            RewriteCandidate(live(f"d{n}", 1, file_size_in_bytes=s), (), RewriteReason.TOO_SMALL, s)
            for n, s in enumerate(sizes)
        )
        groups = list(split(RewriteFileGroup("p", made), limit))
        assert tuple(c for group in groups for c in group.candidates) == made
        assert all(group.cost <= limit or len(group.candidates) == 1 for group in groups)
        if max(sizes) * 4 <= limit:
            assert len(groups) <= -(-sum(sizes) // limit) + 1

    def test_a_group_is_one_unit_however_large(self, stream: StreamTable) -> None:
        add(stream, *(entry(50) for _ in range(20)))
        assert len(units(stream, 1)) == 1

    def test_small_partitions_share_a_unit(self, stream: StreamTable) -> None:
        add(stream, *(entry(10, p) for p in "abcd" for _ in range(5)))
        assert [unit.header.label for unit in units(stream, 100)] == ["p=a +1 more", "p=c +1 more"]
        assert [unit.header.label for unit in units(stream, 99)] == ["p=a", "p=b", "p=c", "p=d"]
        [unit] = units(stream)
        assert [scope.label for scope in unit.scopes] == ["p=a", "p=b", "p=c", "p=d"]
        assert unit.header.why == "20 small files"


class TestDeletes:
    """Files with too many deletes."""

    @pytest.mark.parametrize(("rows", "selected"), [(30, True), (29, False), (500, True)])
    @pytest.mark.parametrize("version", [2, 3])
    def test_the_share_of_deleted_rows(
        self, create: Callable[..., StreamTable], version: int, rows: int, selected: bool
    ) -> None:
        stream = create(format_version=version)
        [file, _] = add(stream, entry(100), entry(100))
        add(stream, vector(file, rows) if version == 3 else positions(file, rows))
        found = units(stream)
        assert contents(found) == ([{file.path}] if selected else [])
        assert [unit.header.why for unit in found] == (["1 file with many deletes"] if selected else [])

    def test_shares_add_up(self, stream: StreamTable) -> None:
        [file] = add(stream, entry(100))
        add(stream, positions(file, 15))
        assert not units(stream)
        add(stream, positions(file, 15))
        assert len(units(stream)) == 1
        assert not units(stream, delete_ratio_threshold=0.31)

    def test_only_known_rows_count(self, stream: StreamTable) -> None:
        """Nobody knows how many rows of a file an equality delete removes, or a position delete for a partition."""
        [file] = add(stream, entry(100))
        add(stream, equality(rows=90), positions(None, 90))
        assert not units(stream)
        assert contents(units(stream, delete_file_threshold=2)) == [{file.path}]
        assert not units(stream, delete_file_threshold=3)

    def test_a_delete_of_another_partition_does_not_count(self, stream: StreamTable) -> None:
        [file] = add(stream, entry(100))
        add(stream, positions(file, 90, "b"))
        assert not units(stream, delete_file_threshold=1)

    def test_one_equality_delete_can_be_too_many(self, stream: StreamTable) -> None:
        [older] = add(stream, entry(100))
        add(stream, equality(), entry(100))
        assert not units(stream)
        assert contents(units(stream, delete_file_threshold=1)) == [{older.path}]

    def test_one_that_cannot_match_does_not_count(self, stream: StreamTable) -> None:
        def bounds(low: int, high: int) -> dict[str, Any]:
            lower, upper = ({1: to_bytes(LongType(), value)} for value in (low, high))
            return {"lower_bounds": lower, "upper_bounds": upper, "null_value_counts": {1: 0}}

        low, _high = add(stream, entry(100, **bounds(1, 9)), entry(100, **bounds(20, 29)))
        add(stream, equality(**bounds(5, 5)))
        found = units(stream, delete_file_threshold=1)
        assert contents(found) == [{low.path}]
        [whole] = units(stream, rewrite_all="true")
        assert len(whole.deletes) == 1

    def test_what_came_before_a_file_does_not_count(self, stream: StreamTable) -> None:
        """An output of a compaction looks as old as its inputs: a position delete reaches it by the letter alone."""
        add(stream, entry(100))
        add(stream, positions(None, 1))
        stream.remove_files([file.path for file in stream.data_files()])
        output = entry(100)
        stream.commit(RowDelta([NewFile(output.data_file, 0, sequence_number=2)]))
        assert not units(stream, delete_file_threshold=1)
        [unit] = units(stream, rewrite_all="true")
        assert len(unit.positions) == 1, "and is carried along all the same"

    def test_units_carry_every_delete(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        first, second, third = add(stream, entry(10), entry(10), entry(10, "b"))
        own, shared = positions(first, 30), positions(None, 4)
        add(stream, equality(rows=3), own, shared)
        stream.upgrade()
        add(stream, vector(second, 40), equality("b", 5))
        [unit] = units(stream, rewrite_all="true")
        header = unit.header
        assert (header.files, header.rows, header.delete_files, header.delete_rows) == (3, 300, 5, 82)
        assert [(file.path, file.scope, file.vector is not None) for file in unit.data] == [
            (first.path, 0, False),
            (second.path, 0, True),
            (third.path, 1, False),
        ]
        assert [(d.records, d.scope, d.equality_ids) for d in unit.deletes] == [(3, 0, (1,)), (5, 1, (1,))]
        assert {(p.path, p.referenced) for p in unit.positions} == {
            (own.data_file.file_path, first.path),
            (shared.data_file.file_path, None),
        }
        assert header.cost == 30 + 4 * 7 + 40, "of a Puffin file, the vector alone"
        assert header.output == 7 + 6 + 10, "what deletes are known to leave"

    def test_row_ids(self, create: Callable[..., StreamTable]) -> None:
        stream = create()
        add(stream, entry(10))
        stream.upgrade()
        add(stream, entry(10))
        add(stream, *(entry(10) for _ in range(3)))
        [unit] = units(stream)
        assert sorted(file.first_row_id is not None for file in unit.data) == [True] * 5
        assert {file.first_row_id for file in unit.data} == {file.first_row_id for file in stream.data_files()}


class TestTiers:
    """Presets over thresholds."""

    def test_minor_takes_small_files_only(self, stream: StreamTable) -> None:
        fresh, old, *_ = add(stream, entry(11), entry(13), entry(400))
        add(stream, positions(old, 90), positions(fresh, 1))
        assert contents(units(stream, tier="minor")) == [{fresh.path}]
        assert len(contents(units(stream))[0]) == 3

    def test_minor_merges_five(self, stream: StreamTable) -> None:
        small = add(stream, *(entry(11) for _ in range(4)), *(entry(12) for _ in range(4)))
        assert nothing(stream, tier="minor").startswith("no group qualifies: 4 small files in 1 partition")
        small = [*small[:4], *add(stream, entry(11))]
        assert contents(units(stream, tier="minor")) == [{file.path for file in small}]
        assert nothing(stream, tier="minor", min_file_size_bytes=5) == "none of 9 data files is below 5 bytes"


class TestOrderAndNumber:
    """Which groups come first, and how many files are rewritten."""

    @pytest.fixture
    def partitions(self, stream: StreamTable) -> StreamTable:
        add(stream, *(entry(size, p) for p, size, n in (("a", 10, 6), ("b", 12, 8), ("c", 40, 5)) for _ in range(n)))
        return stream

    @pytest.mark.parametrize(
        ("order", "labels"),
        [
            ("none", ["p=a", "p=b", "p=c"]),
            ("bytes-asc", ["p=a", "p=b", "p=c"]),
            ("bytes-desc", ["p=c", "p=b", "p=a"]),
            ("files-asc", ["p=c", "p=a", "p=b"]),
            ("files-desc", ["p=b", "p=a", "p=c"]),
        ],
    )
    def test_order(self, partitions: StreamTable, order: str, labels: list[str]) -> None:
        assert [unit.header.label for unit in units(partitions, 1, rewrite_job_order=order)] == labels

    @pytest.mark.parametrize(
        ("most", "files"),
        [(100, [6, 8, 5]), (19, [6, 8, 5]), (18, [6, 8, 4]), (16, [6, 8]), (14, [6, 8]), (10, [6]), (5, [5])],
    )
    def test_no_more_files_than_that(self, partitions: StreamTable, most: int, files: list[int]) -> None:
        """The last group comes in part, unless that part is not worth it: two files of 40 bytes, four of 12."""
        assert [unit.header.files for unit in units(partitions, 1, max_files_to_rewrite=most)] == files

    def test_the_order_decides_which(self, partitions: StreamTable) -> None:
        [unit] = units(partitions, 1, max_files_to_rewrite=5, rewrite_job_order="bytes-desc")
        assert unit.header.label == "p=c"

    def test_too_few(self, partitions: StreamTable) -> None:
        assert nothing(partitions, max_files_to_rewrite=4) == (
            "max-files-to-rewrite=4 leaves no group that is worth it"
        )


class TestSpecs:
    """Files of other specs than the one that is written under."""

    @pytest.fixture
    def evolved(self, stream: StreamTable) -> StreamTable:
        """Three small files in each of three partitions of the old spec, and six of the new one without fields."""
        add(stream, *(entry(10, p) for p in "abc" for _ in range(3)))
        with stream.table.update_spec() as update:
            update.remove_field("p")
        add(stream, *(entry(10, None, spec_id=stream.table.spec().spec_id) for _ in range(6)))
        return stream

    def test_they_make_one_group_with_all_others(self, evolved: StreamTable) -> None:
        """Apart, they would leave a small file beside that of the others."""
        [unit] = units(evolved, 1)
        assert (unit.header.label, unit.header.files) == ("p=a +3 more", 15)
        assert [(scope.spec_id, scope.label) for scope in unit.scopes] == [
            *((0, "p=a"), (0, "p=b"), (0, "p=c")),
            (1, ""),
        ]
        plan = planned(evolved).plan
        assert plan.rewrite is not None
        assert plan.rewrite.spec_id == evolved.table.spec().spec_id

    def test_they_leave_others_alone_where_they_are_not_worth_it(self, evolved: StreamTable) -> None:
        assert len(units(evolved, 1, output_spec_id=0, min_input_files=3)) == 1
        add(evolved, *(entry(10, "a") for _ in range(4)))
        [unit] = units(evolved, 1, output_spec_id=0, min_input_files=7)
        assert (unit.header.label, unit.header.files) == ("p=a", 7)

    def test_a_spec_that_is_none(self, evolved: StreamTable) -> None:
        with pytest.raises(Refused, match="output-spec-id=9 is not allowed: the table has 0, 1"):
            planned(evolved, output_spec_id=9)


class TestExpectedFiles:
    """Each partition of a unit gets files of its own, none above the maximum."""

    def test_partitions_of_one_unit(self, stream: StreamTable) -> None:
        add(stream, *(entry(1, f"p{number}") for number in range(16) for _ in range(5)))
        assert len(planned(stream).units) == 1
        assert expected_files(planned(stream)) == "about 16 files"

    @pytest.mark.parametrize(("size", "files"), [(10, "1 file"), (34, "1 file"), (40, "2 files"), (70, "3 files")])
    def test_large_partitions(self, stream: StreamTable, size: int, files: str) -> None:
        add(stream, *(entry(size) for _ in range(5)))
        assert expected_files(planned(stream)) == f"about {files}"

    def test_deleted_rows_are_not_written(self, stream: StreamTable) -> None:
        files = add(stream, *(entry(70) for _ in range(5)))
        add(stream, *(positions(file, 75) for file in files))
        assert expected_files(planned(stream)) == "about 1 file"

    def test_refused_units_write_nothing(self, stream: StreamTable) -> None:
        add(stream, *(entry(1, p) for p in "ab" for _ in range(5)))
        add(stream, *(entry(1, "c", file_format=FileFormat.AVRO) for _ in range(5)))
        assert expected_files(planned(stream)) == "about 2 files"

    def test_rows_that_are_routed_may_go_to_any_partition(self, stream: StreamTable) -> None:
        with stream.table.update_spec() as update:
            update.add_identity("id")
        add(stream, *(entry(10, p) for p in "ab" for _ in range(5)))
        assert expected_files(planned(stream)) == "at least 1 file"


class TestFilters:
    """``where`` and what is left to do."""

    def test_where(self, stream: StreamTable) -> None:
        add(stream, *(entry(10, p) for p in "ab" for _ in range(5)))
        assert [unit.header.label for unit in units(stream, where="p = 'b'")] == ["p=b"]
        assert nothing(stream, where="p = 'z'") == "--where selects none of 10 data files"

    def test_only_what_is_left(self, stream: StreamTable) -> None:
        files = add(stream, *(entry(10, p) for p in "ab" for _ in range(6)))
        paths = [file.path for file in files[:6]]
        assert contents(units(stream, 1, only=[*paths, "s3://x/gone"])) == [set(paths)]
        stream.remove_files(paths[:1])
        assert contents(units(stream, 1, only=paths)) == [set(paths[1:])]
        stream.remove_files(paths[1:2])
        assert not units(stream, 1, only=paths), "four are too few, now as ever"
        assert nothing(stream, only=paths) == "the files that were left to rewrite are rewritten or removed already"

    def test_a_later_round_does_nothing_for_its_own_sake(self, stream: StreamTable) -> None:
        add(stream, entry(100))
        add(stream, equality("gone"))
        assert planned(stream).plan.dangling
        assert planned(stream, only=["s3://x/lost"]).plan.empty


class TestDangling:
    """Delete files that reach no data file; what reaches one is told apart by one sequence number."""

    @pytest.fixture
    def both(self, stream: StreamTable) -> StreamTable:
        """A file in each of two partitions, committed as 2 and 3."""
        add(stream, entry(100, "z"))
        add(stream, entry(100, "a", path="s3://x/a"))
        add(stream, entry(100, "b", path="s3://x/b"))
        return stream

    def dangling(self, stream: StreamTable, **options: Any) -> bool:
        found = planned(stream, **options)
        assert found.units == ()
        assert found.plan.nothing is not None
        assert found.plan.empty is not found.plan.dangling
        return found.plan.dangling

    def commit(self, stream: StreamTable, file: NewFile, sequence_number: int) -> None:
        stream.commit(RowDelta([NewFile(file.data_file, file.spec_id, sequence_number)]))

    @pytest.mark.parametrize(("number", "expected"), [(2, True), (3, False)])
    def test_equality_deletes(self, both: StreamTable, number: int, expected: bool) -> None:
        self.commit(both, equality("a"), number)
        assert self.dangling(both) is expected
        assert not self.dangling(both, remove_dangling_deletes="false")

    @pytest.mark.parametrize(("number", "expected"), [(1, True), (2, False)])
    def test_position_deletes_of_a_partition(self, both: StreamTable, number: int, expected: bool) -> None:
        self.commit(both, positions(None, 1, "a"), number)
        assert self.dangling(both) is expected

    @pytest.mark.parametrize(("path", "expected"), [("s3://x/a", False), ("s3://x/c", True)])
    def test_position_deletes_of_a_file(self, both: StreamTable, path: str, expected: bool) -> None:
        add(both, positions(entry(1, path=path), 1))
        assert self.dangling(both) is expected

    @pytest.mark.parametrize(("path", "expected"), [("s3://x/a", False), ("s3://x/c", True)])
    def test_vectors(self, both: StreamTable, path: str, expected: bool) -> None:
        both.upgrade()
        [target] = add(both, entry(100, path="s3://x/c"))
        add(both, vector(target, 1) if expected else vector(both.data_files()[1], 1))
        if expected:
            both.remove_files(["s3://x/c"])
        assert self.dangling(both) is expected

    def test_a_partition_without_data(self, both: StreamTable) -> None:
        add(both, equality("nobody"))
        assert self.dangling(both)

    @pytest.mark.parametrize(("number", "expected"), [(1, True), (2, False)])
    def test_global_deletes_are_for_the_whole_table(
        self, create: Callable[..., StreamTable], number: int, expected: bool
    ) -> None:
        stream = create(spec=spec(0))
        with stream.table.update_spec() as update:
            update.add_identity("p")
        add(stream, entry(100, "b", spec_id=1))
        self.commit(stream, equality(None), number)
        assert self.dangling(stream) is expected


class TestRefused:
    """What cannot be read is refused by name, and the rest goes on."""

    @pytest.mark.parametrize(
        ("fields", "says"),
        [({"file_format": FileFormat.ORC}, "is ORC: only Parquet"), ({"key_metadata": b"k"}, "is encrypted")],
    )
    def test_data_files(self, stream: StreamTable, fields: dict[str, Any], says: str) -> None:
        add(stream, *(entry(10) for _ in range(5)), entry(10, path="s3://x/odd", **fields))
        good, odd = units(stream)
        assert (good.header.files, good.header.refused) == (5, None)
        assert odd.header.refused is not None
        assert odd.header.refused.startswith(f"s3://x/odd {says}")
        assert (odd.header.files, odd.header.cost, odd.header.output) == (1, 0, 0)
        assert planned(stream).plan.units == (good.header, odd.header)

    def test_what_is_left_must_be_worth_it(self, stream: StreamTable) -> None:
        add(stream, *(entry(10) for _ in range(4)), entry(10, file_format=FileFormat.AVRO))
        assert [unit.header.refused is None for unit in units(stream)] == [False]

    def test_delete_files(self, stream: StreamTable) -> None:
        add(stream, *(entry(10, p) for p in "ab" for _ in range(5)))
        add(stream, equality("a", file_format=FileFormat.AVRO, path="s3://x/odd"))
        assert [(u.header.label, u.header.refused) for u in units(stream)] == [
            ("p=b", None),
            ("p=a", "s3://x/odd is AVRO: only Parquet is read so far. (and 4 more files)"),
        ]

    def test_keys_that_nobody_knows(self, stream: StreamTable) -> None:
        add(stream, *(entry(10) for _ in range(5)))
        add(stream, delete("a", DataFileContent.EQUALITY_DELETES, equality_ids=[99]))
        [unit] = units(stream)
        assert "has equality ids [99]: one of them is no column of a primitive type." in (unit.header.refused or "")


class TestTables:
    """What can be compacted at all."""

    def test_version_1(self, create: Callable[..., StreamTable], catalog: InMemoryCatalog) -> None:
        stream = create(format_version=1, spec=spec(0))
        for _ in range(5):
            stream.table.append(pa.table({"id": pa.array([1], pa.int64()), "p": ["a"]}))
        [unit] = units(stream, target_file_size_bytes=100_000)
        assert (unit.header.files, {file.sequence_number for file in unit.data}) == (5, {0})

    def test_no_snapshot(self, stream: StreamTable) -> None:
        assert nothing(stream) == "the table has no snapshot"

    def test_no_data_files(self, stream: StreamTable) -> None:
        [file] = add(stream, entry(10))
        stream.remove_files([file.path])
        assert nothing(stream) == "there are no data files"

    def test_options_are_checked_before_anything_is_read(self, stream: StreamTable) -> None:
        request = Request.new("db.t", operation=Operation.COMPACT, options={"rewrite-al": "true"})
        with pytest.raises(Refused, match="did you mean 'rewrite-all'") as refused:
            check_request(stream.table, request)
        assert refused.value.reason == Reason.USAGE
        with pytest.raises(Refused, match="did you mean 'rewrite-all'"):
            plan(stream.table, request, unit_bytes=1)

    def test_plans_of_one_table_are_equal(self, stream: StreamTable) -> None:
        add(stream, *(entry(10, p) for p in "cab" for _ in range(6)))
        first, second = (planned(stream, 1) for _ in range(2))
        assert [unit.data for unit in first.units] == [unit.data for unit in second.units]
        assert first.plan.units == second.plan.units


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=30),
    st.integers(1, 99),
    st.integers(101, 300),
    st.integers(1, 8),
)
def test_what_was_rewritten_is_left_alone(sizes: list[int], least: int, most: int, files: int) -> None:
    """Whatever the limits: the files that a group becomes, as the engine sizes them, are not selected again."""
    given = SIZES | {
        "min-file-size-bytes": str(least),
        "max-file-size-bytes": str(most),
        "min-input-files": str(files),
    }
    options = Options.parse(given)
    rewrite = resolve(options, metadata(SCHEMA))

    def candidates(found: Iterable[int]) -> list[RewriteCandidate]:
        judged = [
            (RewriteReason.TOO_SMALL if s < least else RewriteReason.TOO_LARGE, s)
            for s in found
            if s < least or s > most
        ]
        return [RewriteCandidate(live("d", 1, file_size_in_bytes=size), (), why, size) for why, size in judged]

    before = candidates(sizes)
    if not qualifies(before, rewrite, options):
        return
    total = sum(candidate.file.size for candidate in before)
    number = max(1, round(total / 100))
    while total / number > most:
        number += 1
    while number > 1 and total / number < least and total / (number - 1) <= most:
        number -= 1
    written = [total // number + (n < total % number) for n in range(number)]
    assert not qualifies(candidates(written), rewrite, options)


def test_a_large_table_is_planned_in_linear_time(stream: StreamTable) -> None:
    """Every delete reaches every file of its partition, as a stream leaves it; effort must not be their product."""
    chance = random.Random(7)
    names = [f"p{n}" for n in range(8)]
    files = [entry(chance.randrange(1, 300), chance.choice(names)) for _ in range(6000)]
    for part in range(0, len(files), 2000):
        add(stream, *files[part : part + 2000])
        stream.commit(RowDelta([equality(p) for p in names for _ in range(60)]))
        stream.commit(RowDelta([positions(None, 1, p) for p in names for _ in range(60)]))
    started = time.process_time()
    found = planned(stream, delete_file_threshold=1000)
    assert time.process_time() - started < 6
    assert sum(len(unit.data) for unit in found.units) > 2000
