"""Other writers between plan and commit: conflicts cost only the units they touch."""

from __future__ import annotations

from collections import Counter

from producer.model.job import Status
from producer.state.commit_history import ROUND
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import (
    ROWS,
    Create,
    assert_converted,
    compact,
    data,
    equality,
    fill,
    made,
    recount,
    rows,
    totals,
)
from tests.support.faulty import FaultyCatalog, Jobs, meanwhile
from tests.support.unreferenced import unreferenced


class TestOtherWriters:
    """Conflicts cost only the units they touch."""

    def test_appends_and_upserts_between_plan_and_commit(self, stream: StreamTable, jobs: Jobs) -> None:
        def write() -> None:
            stream.append(rows(2, 3))
            stream.upsert(rows(1), ["id"])

        report = jobs.run(between=write)
        assert report.status is Status.COMMITTED
        assert len(made(stream, report)) == 1
        assert len(equality(stream)) == 1, "the new one is the next job's"
        expected = Counter({(3, "a"): 2, (2, "a"): 1, (1, "a"): 1, (2, "b"): 1, (3, "b"): 1})
        assert oracle.rows(stream.table) == expected
        assert unreferenced(stream.table) == set()

    def test_a_compaction_that_keeps_an_old_number(self, stream: StreamTable, jobs: Jobs) -> None:
        """Only its partition is planned again, and all of it is converted in the end."""
        compacted: list[str] = []

        def other() -> None:
            if not compacted:
                compacted.append(data(stream)[0].path)
                compact(stream, data(stream)[:1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(between=other)
        assert_converted(stream, report)
        first, second = made(stream, report)
        assert first.summary is not None
        assert second.summary is not None
        assert (first.summary[ROUND], second.summary[ROUND]) == ("0", "1")
        assert first.summary["removed-equality-delete-files"] == second.summary["removed-equality-delete-files"] == "1"
        assert len(jobs.staged) == 2
        assert report.removed_equality_delete_files == 2
        assert compacted[0] not in {file.referenced_data_file for file in stream.delete_files()}

    def test_compactions_without_an_end(self, stream: StreamTable, jobs: Jobs) -> None:
        def other() -> None:
            compact(stream, [f for f in data(stream) if f.sequence_number == 1], rows(1, 2, 3), sequence_number=1)

        report = jobs.run(between=other)
        assert report.status is Status.PARTIAL
        assert report.exit_status == 3
        assert report.reason is not None
        assert "other writers changed what" in report.reason
        assert len(jobs.staged) == jobs.settings.max_rounds
        assert [file.partition[0] for file in equality(stream)] == ["a"]
        assert oracle.rows(stream.table) == ROWS
        assert unreferenced(stream.table) == set()

    def test_a_delete_and_its_data_that_were_removed(self, stream: StreamTable, jobs: Jobs) -> None:
        report = jobs.run(
            between=lambda: stream.remove_files([f.path for f in (*equality(stream), *data(stream, "b"))])
        )
        assert report.status is Status.NOTHING_TO_DO
        assert report.reason == "another writer already made this change"
        assert made(stream, report) == []
        assert unreferenced(stream.table) == set()

    def test_a_data_file_that_was_removed(self, stream: StreamTable, jobs: Jobs) -> None:
        [b] = data(stream, "b")
        report = jobs.run(between=lambda: stream.remove_files([b.path]))
        assert_converted(stream, report, Counter({(1, "a"): 1, (3, "a"): 1}))
        assert b.path not in {file.referenced_data_file for file in stream.delete_files()}
        assert (report.removed_equality_delete_files, report.added_position_deletes) == (2, 2)

    def test_a_vector_of_somebody_else_is_merged(self, create: Create, catalog: FaultyCatalog, jobs: Jobs) -> None:
        """Once between plan and commit, once more under the commit."""
        stream = create(3)
        fill(stream)
        [a, *_] = data(stream)
        [b] = data(stream, "b")
        catalog.faults.append(meanwhile(lambda: stream.delete_vector({a.path: [2], b.path: [2]})))
        report = jobs.run(between=lambda: stream.delete_vector({a.path: [0]}))
        assert_converted(stream, report, Counter({(3, "a"): 1, (2, "b"): 1}))
        [snapshot] = made(stream, report)
        assert totals(snapshot) == recount(stream.table)
        assert snapshot.summary is not None
        assert (snapshot.summary["added-dvs"], snapshot.summary["removed-dvs"]) == ("2", "2")
        assert {f.referenced_data_file: f.record_count for f in stream.delete_files()} == {a.path: 3, b.path: 2}

    def test_a_vector_that_was_taken_back(self, create: Create, jobs: Jobs) -> None:
        """Its rows are there again, and none of them may go with the conversion."""
        stream = create(3)
        fill(stream)
        stream.delete_vector({data(stream)[0].path: [0]})
        done: list[bool] = []

        def take_back() -> None:
            if not done:
                done.append(True)
                stream.remove_files([file.path for file in stream.delete_files() if file.is_vector])

        report = jobs.run(between=take_back)
        assert_converted(stream, report)

    def test_two_converters_race(self, stream: StreamTable, jobs: Jobs) -> None:
        one, two = jobs.request(), jobs.request()
        first, second = jobs.start(one), jobs.start(two)
        assert len(jobs.staged) == 2
        report, late = jobs.end(first), jobs.end(second)
        assert_converted(stream, report)
        assert (late.status, late.reason) == (Status.NOTHING_TO_DO, "another writer already made this change")
        assert made(stream, late) == []

    def test_two_converters_of_different_partitions(self, stream: StreamTable, jobs: Jobs) -> None:
        first = jobs.start(jobs.request(where="p = 'a'"))
        second = jobs.start(jobs.request(where="p = 'b'"))
        assert jobs.end(first).status is Status.COMMITTED
        assert_converted(stream, jobs.end(second))
