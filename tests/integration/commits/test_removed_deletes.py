"""Deletes that somebody takes away between plan and commit: no row is deleted that is alive, and none comes back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyiceberg.manifest import DataFileContent

from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.model.job import Operation, Report, Status
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import read_rows
from tests.support import oracle
from tests.support.commits import Create, data, equality, made, rows
from tests.support.faulty import FaultyCatalog, Jobs, lose, meanwhile
from tests.support.unreferenced import unreferenced

BOTH = pytest.mark.parametrize("operation", list(Operation))
#: A compaction of every file.
ALL = {"rewrite-all": "true"}


def run(jobs: Jobs, operation: Operation, between: Callable[[], object]) -> Report:
    """Run a job; ``between`` happens once, when its first round is staged."""
    pending = [between]
    request = jobs.request(operation=operation, options=ALL if operation is Operation.COMPACT else {})
    return jobs.run(request, between=lambda: pending.pop()() if pending else None)


def alive(*ids: int, p: str = "a") -> Counter[tuple[int, str]]:
    return Counter((number, p) for number in ids)


def positions(stream: StreamTable) -> list[LiveFile]:
    """Live position delete files and vectors, oldest first."""
    return [f for f in stream.delete_files() if f.content == DataFileContent.POSITION_DELETES]


def again(file: LiveFile) -> NewFile:
    """A file that is live already, for a commit that adds it once more under its path."""
    names = ("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes", "equality_ids")
    return NewFile(new_data_file(**{name: getattr(file.data_file, name) for name in names}), file.spec_id)


def assert_rows(stream: StreamTable, expected: Counter[tuple[int, str]]) -> None:
    """What two readers find that share no code with the writer, nor with each other; and nothing left behind."""
    assert oracle.rows(stream.table) == expected
    found = read_rows(stream.table)
    assert Counter(zip(found["id"].to_pylist(), found["p"].to_pylist(), strict=True)) == expected
    assert unreferenced(stream.table) == set()


class TestEqualityDeletes:
    """One of several that a unit applied is withdrawn: its rows are alive again."""

    @pytest.fixture(params=[2, 3], ids=["v2", "v3"])
    def stream(self, request: pytest.FixtureRequest, create: Create) -> StreamTable:
        """Rows 1 to 6 of partition a in two files, 1 to 3 of b; 2 and then 3 and 5 deleted by key, 3 of b too."""
        stream = create(request.param)
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.append(rows(1, 2, 3, p="b"))
        stream.delete_where_equal(rows(2), ["id"])
        stream.delete_where_equal(rows(3, 5), ["id"])
        stream.delete_where_equal(rows(3, p="b"), ["id"])
        return stream

    @BOTH
    def test_one_is_removed(self, stream: StreamTable, jobs: Jobs, operation: Operation) -> None:
        first = equality(stream)[0]
        report = run(jobs, operation, lambda: stream.remove_files([first.path]))
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 2, 4, 6) + alive(1, 2, p="b"))
        assert equality(stream) == []
        assert len(jobs.staged) == 2, "planned again"

    @BOTH
    def test_after_a_lost_race(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, operation: Operation
    ) -> None:
        """Each attempt looks again."""
        first = equality(stream)[0]
        catalog.faults.extend([lose, meanwhile(lambda: stream.remove_files([first.path]))])
        report = run(jobs, operation, lambda: None)
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 2, 4, 6) + alive(1, 2, p="b"))

    def test_only_what_it_reached_is_planned_again(self, stream: StreamTable, jobs: Jobs) -> None:
        first, _, other = equality(stream)
        report = run(jobs, Operation.CONVERT, lambda: stream.remove_files([first.path]))
        whole, rest = (snapshot.summary for snapshot in made(stream, report))
        assert whole is not None
        assert rest is not None
        assert (whole["removed-equality-delete-files"], rest["removed-equality-delete-files"]) == ("1", "1")
        assert other.path not in {file.path for file in equality(stream)}
        assert report.removed_equality_delete_files == 2

    def test_files_of_a_partition_are_dropped_together(self, create: Create, jobs: Jobs) -> None:
        """A position delete file of several data files is committed as a whole or not at all."""
        stream = create(properties={"write.delete.granularity": "partition"})
        stream.append(rows(1, 2, 3))
        stream.delete_where_equal(rows(2), ["id"])
        withdrawn = equality(stream)[0]
        stream.append(rows(4, 5, 6))
        stream.delete_where_equal(rows(3, 5), ["id"])
        report = run(jobs, Operation.CONVERT, lambda: stream.remove_files([withdrawn.path]))
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 2, 4, 6))

    def test_one_that_somebody_converted(self, stream: StreamTable, jobs: Jobs) -> None:
        """Its rows stay deleted, and the rest is converted all the same."""
        first, file = equality(stream)[0], data(stream)[0].path

        def convert() -> None:
            if stream.table.metadata.format_version == 2:
                stream.commit(RowDelta(stream.write_position_deletes({file: [1]}), [first]))
            else:
                vectors = stream.write_vectors({file: [1]})
                stream.commit(RowDelta(vectors.added, [*vectors.removed, first]))

        report = run(jobs, Operation.CONVERT, convert)
        assert report.status is Status.COMMITTED
        assert equality(stream) == []
        assert_rows(stream, alive(1, 4, 6) + alive(1, 2, p="b"))

    def test_where_the_request_leaves_its_scope_unfinished(self, create: Create, jobs: Jobs) -> None:
        """A delete of the whole table stays, and yet what was dropped of its positions is staged again."""
        stream = create(spec=create().table.spec(), name="db.u")
        with stream.table.update_spec() as update:
            update.remove_field("p")
        stream.append(rows(1, 2, 3), spec_id=0)
        stream.append(rows(1, 2, 3, p="b"), spec_id=0)
        stream.delete_where_equal(rows(2), ["id"])
        stream.delete_where_equal(rows(3), ["id"])
        first, second = equality(stream)
        with stream.table.update_spec() as update:
            update.add_identity("p")
        pending = [lambda: stream.remove_files([first.path])]
        report = jobs.run(table="db.u", where="p = 'a'", between=lambda: pending.pop()() if pending else None)
        assert report.status is Status.COMMITTED
        assert [file.path for file in equality(stream)] == [second.path]
        assert [file.record_count for file in positions(stream)] == [1]
        assert oracle.rows(stream.table) == alive(1, 2) + alive(1, 2, p="b")

    def test_a_table_where_it_goes_on_and_on(self, stream: StreamTable, jobs: Jobs) -> None:
        """The job ends with a reason; what was not reached is converted."""
        stream.delete_where_equal(rows(6), ["id"])

        def withdraw() -> None:
            stream.delete_where_equal(rows(1), ["id"])
            stream.remove_files([f.path for f in equality(stream) if f.partition[0] == "a"][:1])

        jobs.settings = jobs.settings.model_copy(update={"max_rounds": 2})
        report = jobs.run(between=withdraw)
        assert report.status is Status.PARTIAL
        assert "other writers changed what " in str(report.reason)
        assert len(jobs.staged) == 2
        assert_rows(stream, alive(2, 3, 4, 5) + alive(1, 2, p="b"))


class TestPositionDeletes:
    """What a unit took as deleted before is withdrawn: an equality delete covers the row, and must not retire."""

    def fill(self, stream: StreamTable) -> None:
        """Two data files in partition a, one in b."""
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.append(rows(1, 2, 3, p="b"))

    def delete(self, stream: StreamTable, *, by_partition: bool = False) -> LiveFile:
        first, second = data(stream)
        targets = {first.path: [1], second.path: [0]} if by_partition else {first.path: [1]}
        if stream.table.metadata.format_version == 3:
            stream.delete_vector(targets)
        else:
            stream.delete_positions(targets, by_partition=by_partition)
        return positions(stream)[0]

    @pytest.fixture(params=["v2", "v2 of a partition", "v3", "v2 upgraded", "v2 of a partition, upgraded"])
    def case(self, request: pytest.FixtureRequest, create: Create) -> tuple[StreamTable, LiveFile]:
        kind = str(request.param)
        stream = create(3 if kind == "v3" else 2)
        self.fill(stream)
        delete = self.delete(stream, by_partition="partition" in kind)
        stream.delete_where_equal(rows(2, 6), ["id"])
        stream.delete_where_equal(rows(3, p="b"), ["id"])
        if "upgraded" in kind:
            stream.upgrade()
        return stream, delete

    @BOTH
    def test_a_row_that_a_key_covers_too(
        self, case: tuple[StreamTable, LiveFile], jobs: Jobs, operation: Operation
    ) -> None:
        stream, delete = case
        report = run(jobs, operation, lambda: stream.remove_files([delete.path]))
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 3, 4, 5) + alive(1, 2, p="b"))
        assert equality(stream) == []

    @BOTH
    def test_a_row_that_no_key_covers(
        self, case: tuple[StreamTable, LiveFile], jobs: Jobs, operation: Operation
    ) -> None:
        """It lives again, and no vector that was merged or file that was written takes it away once more."""
        stream, _ = case
        file = data(stream)[0].path
        if stream.table.metadata.format_version == 2:
            stream.delete_positions({file: [2]})
        else:
            stream.delete_vector({file: [1, 2]})
        last = positions(stream)[-1]
        expected: Counter[tuple[int, str]] = Counter()

        def withdraw() -> None:
            stream.remove_files([last.path])
            expected.update(oracle.rows(stream.table))

        report = run(jobs, operation, withdraw)
        assert report.status is Status.COMMITTED
        assert (expected[3, "a"], expected[2, "a"]) == (1, 0)
        assert_rows(stream, expected)

    def test_one_that_names_other_files_costs_nothing(self, create: Create, jobs: Jobs) -> None:
        stream = create()
        self.fill(stream)
        stream.append(rows(7, 8))
        _, second, third = data(stream)
        stream.delete_positions({second.path: [0], third.path: [0]}, by_partition=True)
        [delete] = positions(stream)
        stream.delete_where_equal(rows(2), ["id"])
        report = run(jobs, Operation.CONVERT, lambda: stream.remove_files([delete.path]))
        assert report.status is Status.COMMITTED
        assert len(jobs.staged) == 1
        assert_rows(stream, alive(1, 3, 4, 5, 6, 7, 8) + alive(1, 2, 3, p="b"))

    def test_one_that_left_with_its_data_file_costs_nothing(self, create: Create, jobs: Jobs) -> None:
        stream = create()
        self.fill(stream)
        delete, first = self.delete(stream), data(stream)[0]
        stream.delete_where_equal(rows(2, 6), ["id"])
        report = run(jobs, Operation.CONVERT, lambda: stream.remove_files([delete.path, first.path]))
        assert report.status is Status.COMMITTED
        assert len(jobs.staged) == 1
        assert_rows(stream, alive(4, 5) + alive(1, 2, 3, p="b"))


class TestVectorsThatAreReplaced:
    """Version 3: a vector that deletes more is merged; one that deletes less brings rows back."""

    @pytest.fixture
    def stream(self, create: Create) -> StreamTable:
        """Row 2 has a vector and is deleted by key; row 3 has a vector."""
        stream = create(3)
        stream.append(rows(1, 2, 3, 4, 5))
        stream.delete_vector({data(stream)[0].path: [1, 2]})
        stream.delete_where_equal(rows(2), ["id"])
        return stream

    def replace(self, stream: StreamTable, *deleted: int) -> None:
        [old] = positions(stream)
        stream.remove_files([old.path])
        stream.delete_vector({data(stream)[0].path: list(deleted)})

    @pytest.mark.parametrize("key", [2, 5], ids=["nothing to stage", "something to stage"])
    def test_by_more(self, stream: StreamTable, jobs: Jobs, key: int) -> None:
        stream.delete_where_equal(rows(key), ["id"])
        report = run(jobs, Operation.CONVERT, lambda: stream.delete_vector({data(stream)[0].path: [3]}))
        assert report.status is Status.COMMITTED
        assert len(jobs.staged) == 1, "it is merged, and nothing is planned again"
        assert_rows(stream, alive(1, *({5} - {key})))

    @pytest.mark.parametrize("key", [2, 5], ids=["nothing to stage", "something to stage"])
    @pytest.mark.parametrize(("deleted", "back"), [([2], []), ([1], [3]), ([0, 3, 4], [3]), ([3], [3])])
    def test_by_others(self, stream: StreamTable, jobs: Jobs, key: int, deleted: list[int], back: list[int]) -> None:
        stream.delete_where_equal(rows(key), ["id"])
        report = run(jobs, Operation.CONVERT, lambda: self.replace(stream, *deleted))
        assert report.status is Status.COMMITTED
        assert equality(stream) == []
        gone = {2, key} | {number + 1 for number in deleted}
        assert set(back) <= {1, 2, 3, 4, 5} - gone
        assert_rows(stream, alive(*({1, 2, 3, 4, 5} - gone)))


class TestDataFilesThatComeBack:
    """A data file leaves and is added again under its path: it is newer than the deletes that applied to it."""

    @BOTH
    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("granularity", ["file", "partition"])
    @pytest.mark.parametrize("commits", [1, 2])
    def test_its_rows_live(
        self, version: int, granularity: str, commits: int, create: Create, jobs: Jobs, operation: Operation
    ) -> None:
        stream = create(version, properties={"write.delete.granularity": granularity})
        stream.append(rows(1, 2, 3))
        stream.append(rows(4, 5, 6))
        stream.delete_where_equal(rows(2, 5), ["id"])
        file = data(stream)[0]

        def add_again() -> None:
            if commits == 2:
                stream.remove_files([file.path])
            stream.commit(RowDelta([again(file)], [file] if commits == 1 else []))

        report = run(jobs, operation, add_again)
        assert report.status is Status.COMMITTED
        assert equality(stream) == []
        assert_rows(stream, alive(1, 2, 3, 4, 6))


class TestEqualityDeletesThatComeBack:
    """An equality delete leaves and is added again under its path: it applies to data files that came before."""

    @BOTH
    @pytest.mark.parametrize("version", [2, 3])
    @pytest.mark.parametrize("commits", [1, 2])
    def test_newer_than_data_that_it_did_not_reach(
        self, version: int, commits: int, create: Create, jobs: Jobs, operation: Operation
    ) -> None:
        stream = create(version)
        stream.append(rows(1, 2, 3))
        stream.delete_where_equal(rows(2, 5), ["id"])
        stream.append(rows(2, 5, 6))
        [delete] = equality(stream)

        def add_again() -> None:
            if commits == 2:
                stream.remove_files([delete.path])
            stream.commit(RowDelta([again(delete)], [delete] if commits == 1 else []))

        report = run(jobs, operation, add_again)
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 3, 6))

    @BOTH
    def test_in_another_partition(self, create: Create, jobs: Jobs, operation: Operation) -> None:
        stream = create()
        stream.append(rows(1, 2, 3))
        stream.append(rows(1, 2, 3, p="b"))
        stream.delete_where_equal(rows(2), ["id"])
        [delete] = equality(stream)

        def move() -> None:
            moved = again(delete)
            moved.data_file.partition[0] = "b"
            stream.commit(RowDelta([moved], [delete]))

        report = run(jobs, operation, move)
        assert report.status is Status.COMMITTED
        assert_rows(stream, alive(1, 2, 3) + alive(1, 3, p="b"))
