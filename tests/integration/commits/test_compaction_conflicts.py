"""Compactions that cannot be committed as they were staged, and commits that go wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.transforms import BucketTransform

from producer.model.job import Status
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance
from tasks.testing import StreamTable
from tests.support import oracle, plainrewriter
from tests.support.commits import ROWS, Create, fill, made, on_disk, rows
from tests.support.compacting import asked, assert_compacted, touch
from tests.support.faulty import FaultyCatalog, Jobs, lose, report_of, unanswered_after, unanswered_before
from tests.support.unreferenced import unreferenced
from workers.model.units import RewriteResult


class TestSpecsThatChange:
    """Rows that are written under another spec: deletes of the old one no longer reach them, others do."""

    @pytest.fixture
    def evolved(self, create: Create) -> StreamTable:
        """Files of the first spec; the default one buckets ids as well."""
        stream = create()
        fill(stream)
        with stream.table.update_spec() as update:
            update.add_field("id", BucketTransform(4), "bucket")
        return stream

    def test_it_moves_rows(self, evolved: StreamTable, jobs: Jobs) -> None:
        report = jobs.run(asked(jobs))
        assert_compacted(evolved, report)
        assert {file.spec_id for file in evolved.data_files()} == {1}

    def test_a_delete_in_the_old_partition_is_kept(self, evolved: StreamTable, jobs: Jobs) -> None:
        step = jobs.start(asked(jobs))
        evolved.delete_where_equal(rows(1), ["id"], spec_id=0)
        assert_compacted(evolved, jobs.end(step), ROWS - Counter({(1, "a"): 1}))

    def test_a_delete_in_the_new_partition_deletes_no_more_than_before(self, evolved: StreamTable, jobs: Jobs) -> None:
        """It came under another spec than the row: by the specification it does not reach it, and never did."""
        step = jobs.start(asked(jobs))
        evolved.upsert(rows(1), ["id"])
        assert oracle.rows(evolved.table) == ROWS + Counter({(1, "a"): 1})
        assert_compacted(evolved, jobs.end(step), ROWS + Counter({(1, "a"): 1}))


class TestConflicts:
    """A conflict that does not go away."""

    def test_after_the_last_round_it_is_reported(self, stream: StreamTable, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"max_rounds": 2})
        report = jobs.run(asked(jobs), between=lambda: touch(stream))
        assert report.status is Status.FAILED
        [failure] = report.failures
        assert failure.unit == 0
        assert failure.reason.startswith("other writers changed which rows of file://")
        assert failure.reason.endswith("after 2 rounds its files stay as they are")
        assert made(stream, report) == []
        assert oracle.rows(stream.table) == ROWS - Counter({(1, "a"): 1})
        assert unreferenced(stream.table) == set()

    def test_all_or_nothing(self, stream: StreamTable, jobs: Jobs) -> None:
        step = jobs.start(asked(jobs, all_or_nothing=True))
        touch(stream)
        assert_compacted(stream, jobs.end(step), ROWS - Counter({(1, "a"): 1}))
        assert len(jobs.staged) == 2

    def test_inputs_that_were_removed_are_nothing_to_do(self, stream: StreamTable, jobs: Jobs) -> None:
        step = jobs.start(asked(jobs, options={"remove-dangling-deletes": "false"}))
        stream.remove_files([file.path for file in stream.data_files()])
        report = jobs.end(step)
        assert (report.status, len(jobs.staged)) == (Status.NOTHING_TO_DO, 1)
        assert unreferenced(stream.table) == set()

    def test_deletes_that_are_left_of_them_go(self, stream: StreamTable, jobs: Jobs) -> None:
        step = jobs.start(asked(jobs))
        stream.remove_files([file.path for file in stream.data_files()])
        assert_compacted(stream, jobs.end(step), Counter())
        assert stream.files() == []

    @pytest.mark.parametrize("whole", [False, True], ids=["parts", "all or nothing"])
    def test_a_loss_of_rows_is_never_committed(
        self, stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, whole: bool
    ) -> None:
        def one_less(*args: Any) -> RewriteResult:
            result = plainrewriter.rewrite(*args)
            return replace(result, files=result.files[1:])

        monkeypatch.setattr("tasks.operations.compact.execute.rewrite", one_less)
        before, metadata = on_disk(stream), stream.table.metadata_location
        report = jobs.run(asked(jobs, all_or_nothing=whole))
        assert report.status is Status.FAILED
        assert report.reason is not None
        assert "7 rows were read, 3 of them deleted, and 2 were written" in report.reason
        assert len(report.failures) == (0 if whole else 1)
        assert (on_disk(stream), stream.table.metadata_location) == (before, metadata)


class TestAnswers:
    """Lost races and lost answers."""

    @pytest.mark.parametrize("fault", [lose, unanswered_before, unanswered_after])
    def test_one_snapshot_all_the_same(
        self, stream: StreamTable, jobs: Jobs, catalog: FaultyCatalog, fault: Any
    ) -> None:
        catalog.faults.append(fault)
        report = jobs.run(asked(jobs))
        assert_compacted(stream, report)
        assert len(made(stream, report)) == 1
        assert len(jobs.staged) == 1

    def test_a_conflict_that_a_lost_answer_hides(
        self, create: Create, jobs: Jobs, catalog: FaultyCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What was committed is in the history; what was left out is still live there."""
        stream = create()
        fill(stream)
        monkeypatch.setattr(
            "producer.planning.compact.planner.bundle", lambda groups, _: [(group,) for group in groups]
        )
        step = jobs.start(asked(jobs))
        assert len(jobs.staged) == 2
        touch(stream)
        catalog.faults.append(unanswered_after)
        report = jobs.end(step)
        assert_compacted(stream, report, ROWS - Counter({(1, "a"): 1}))
        assert len(jobs.staged) == 3
        assert len(made(stream, report)) == 2

    def test_cancelled_while_staged(self, stream: StreamTable, jobs: Jobs) -> None:
        before, metadata = on_disk(stream), stream.table.metadata_location
        request = asked(jobs)
        step = jobs.start(request)
        jobs.context(request).store.cancel()
        report = jobs.end(step)
        assert report.status is Status.CANCELLED
        assert (on_disk(stream), stream.table.metadata_location) == (before, metadata)

    def test_of_two_committers_one_commits(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        request = asked(jobs)
        assert isinstance(jobs.start(request), Stage)
        found: list[Any] = []

        def other(commit: Any) -> Any:
            found.append(advance(jobs.context(request), jobs.settings))
            return commit()

        catalog.faults.append(other)
        first = advance(jobs.context(request), jobs.settings)
        [second] = found
        report = report_of(second)
        assert isinstance(first, Ended)
        assert first.report is None or report_of(first).snapshot_id == report.snapshot_id
        assert_compacted(stream, report)
        assert len(made(stream, report)) == 1
