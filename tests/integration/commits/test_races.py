"""Commits that lose the race for the head, and committers that race each other."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Any

import pytest
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from producer.iceberg import manifest_reader as manifests
from producer.iceberg.manifest_entry import LiveFile
from producer.model.job import Request, Status
from producer.state.job_store import ROOT, JobStore
from tasks.job.pending_commit import PendingCommit, has_pending_commit
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance
from tasks.testing import StreamTable
from tests.support.commits import ROWS, Create, assert_converted, assert_untouched, equality, fill, made, on_disk, rows
from tests.support.faulty import FaultyCatalog, Jobs, lose, meanwhile, report_of
from tests.support.unreferenced import unreferenced


class TestLostRaces:
    """A commit that loses is built again from the same staged files."""

    @pytest.mark.parametrize("times", [1, 4])
    def test_it_is_tried_again(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, times: int) -> None:
        catalog.faults.extend([lose] * times)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert len(catalog.asked) == times + 1
        assert len(jobs.staged) == 1, "nothing is staged again"
        assert len(jobs.slept) == times
        assert all(0 <= seconds <= 10 for seconds in jobs.slept)

    def test_pauses_grow(self, create: Create, catalog: FaultyCatalog, jobs: Jobs) -> None:
        fill(create())
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 40})
        catalog.faults.extend([lose] * 39)
        jobs.run()
        assert max(jobs.slept[:3]) < 1 < max(jobs.slept[10:])
        assert max(jobs.slept) <= 10

    def test_after_the_last_attempt_nothing_is_left(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 3})
        before, metadata = on_disk(stream), stream.table.metadata_location
        catalog.faults.extend([lose] * 3)
        report = jobs.run()
        assert (report.status, report.exit_status) == (Status.FAILED, 1)
        assert report.reason is not None
        assert report.reason.startswith("Other writers were faster 3 times: nothing was committed;")
        assert len(catalog.asked) == 3
        assert len(jobs.slept) == 2
        assert_untouched(stream, before, metadata)

    def test_the_next_job_succeeds(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})
        catalog.faults.append(lose)
        assert jobs.run().status is Status.FAILED
        assert_converted(stream, jobs.run())

    def test_a_writer_who_really_was_faster(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.extend([meanwhile(partial(stream.append, rows(n))) for n in (7, 8)])
        report = jobs.run()
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1, (8, "a"): 1}))
        [snapshot] = made(stream, report)
        assert snapshot.sequence_number == 7
        assert len(jobs.staged) == 1

    def test_only_what_is_new_is_read_again(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else each lost race would make the next one longer, and a busy stream would win them all."""
        read: list[str] = []
        attempts: list[list[str]] = []
        real = manifests.read_manifest

        def noted(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
            read.append(manifest.manifest_path)
            return real(io, manifest)

        def write() -> None:
            attempts.append(read.copy())
            stream.append(rows(7))
            read.clear()

        step = jobs.start(jobs.request())
        monkeypatch.setattr(manifests, "read_manifest", noted)
        catalog.faults.extend([meanwhile(write)] * 3)
        assert jobs.end(step).status is Status.COMMITTED
        first, second, third = attempts
        assert first
        assert len(second) == len(third) == 1, "the one that the other writer has added"
        assert len({*first, *second, *third}) == len(first) + 2

    def test_a_writer_on_another_branch(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.append(meanwhile(lambda: stream.append(rows(7), branch="audit")))
        report = jobs.run()
        assert_converted(stream, report)
        assert len(equality(stream, "audit")) == 2
        numbers = [snapshot.sequence_number for snapshot in stream.table.metadata.snapshots]
        assert len(set(numbers)) == len(numbers)


class TestTwoPlanners:
    """The same plan message, delivered twice and worked on side by side."""

    @pytest.fixture
    def staged(self, stream: StreamTable, jobs: Jobs) -> Request:
        """A job whose plan is written and staged, while another planner has looked and has not found it."""
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        store = jobs.context(request).store
        store.io.delete(f"{store.location}/{ROOT}/{request.token}/plan-0.json")
        return request

    def test_what_was_staged_of_the_one_does_not_count_for_the_other(
        self, stream: StreamTable, jobs: Jobs, staged: Request
    ) -> None:
        """The second plan retires a delete that nobody has applied when the first one was staged."""
        stream.append(rows(7, 8))
        stream.delete_where_equal(rows(8), ["id"])
        report = jobs.run(staged)
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1}))
        assert len(jobs.staged) == 2

    def test_a_job_that_was_planned_twice_leaves_nothing(
        self, stream: StreamTable, jobs: Jobs, staged: Request
    ) -> None:
        step = jobs.start(staged)
        jobs.context(staged).store.cancel()
        before = stream.table.metadata_location
        assert jobs.end(step).status is Status.CANCELLED
        assert unreferenced(stream.table) == set()
        assert stream.table.metadata_location == before


class TestTwoCommitters:
    """The same commit message, delivered twice and worked on side by side."""

    def test_one_of_them_commits(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        found: list[Any] = []

        def other(commit: Any) -> Any:
            found.append(advance(jobs.context(request), jobs.settings))
            return commit()

        catalog.faults.append(other)
        first = advance(jobs.context(request), jobs.settings)
        [second] = found
        assert isinstance(first, Ended)
        report = report_of(second)
        assert first.report is None or report_of(first).snapshot_id == report.snapshot_id
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1

    def test_none_ends_the_job_under_the_other(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        """The second one is cancelled in the middle of the first one's commit."""
        request = jobs.request()
        jobs.start(request)

        def other(commit: Any) -> Any:
            jobs.context(request).store.cancel()
            advance(jobs.context(request), jobs.settings)
            return commit()

        catalog.faults.append(other)
        step = advance(jobs.context(request), jobs.settings)
        report = jobs.end(step)
        assert_converted(stream, report)

    def test_a_committer_that_gives_up_does_not_hide_the_other(self, create: Create, jobs: Jobs) -> None:
        """Its record is the first of both: if it were missing, the clean-up would delete what the other one commits."""
        fill(create())
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        context = jobs.context(request)
        first, second = (PendingCommit.of(context.store, step.plan) for _ in range(2))
        head = context.reload(step.plan).metadata.current_snapshot_id
        assert head is not None
        for pending in (first, second):
            pending.begin_attempt(head, None)
        context.store.close()
        first.settle(happened=False)
        assert has_pending_commit(context, step.plan)
        second.settle(happened=False)
        assert not has_pending_commit(context, step.plan)
        assert context.store.at(step.plan).commits() == []

    def test_a_commit_of_a_machine_whose_clock_is_wrong_may_still_happen(
        self, create: Create, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fill(create())
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        context = jobs.context(request)
        pending = PendingCommit.of(context.store, step.plan)
        head = context.reload(step.plan).metadata.current_snapshot_id
        assert head is not None
        now, clock = time.time(), time.monotonic()
        for off in (-1800, 1800):
            with monkeypatch.context() as clocks:
                clocks.setattr(time, "time", lambda off=off: now + off)
                pending.begin_attempt(head, None)
            assert pending.is_fresh or off < 0
            assert has_pending_commit(context, step.plan)
            with monkeypatch.context() as clocks:
                clocks.setattr(time, "monotonic", lambda: clock + 299)
                assert has_pending_commit(context, step.plan)
                clocks.setattr(time, "monotonic", lambda: clock + 400)
                assert not has_pending_commit(context, step.plan)
        monkeypatch.setattr(time, "time", lambda: now + 9000)
        assert not has_pending_commit(context, step.plan)

    @pytest.mark.parametrize("name", ["time", "monotonic"])
    def test_a_commit_whose_preparation_took_long_is_not_sent(
        self, create: Create, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        fill(create())
        request = jobs.request()
        step = jobs.start(request)
        assert isinstance(step, Stage)
        pending = PendingCommit.of(jobs.context(request).store, step.plan)
        pending.begin_attempt(1, None)
        assert pending.is_fresh
        later = getattr(time, name)() + 151
        monkeypatch.setattr(time, name, lambda: later)
        assert not pending.is_fresh

    def test_a_committer_of_a_job_that_is_being_ended_stops_at_once(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        request = jobs.request()
        jobs.start(request)
        jobs.context(request).store.close()
        step = advance(jobs.context(request), jobs.settings)
        assert isinstance(step, Ended)
        assert report_of(step).status is Status.FAILED
        assert jobs.slept == []
        assert unreferenced(stream.table) == set()

    def test_a_commit_that_happens_while_the_other_cancels_the_job(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The second one finds no commit in the table, and then none pending: it happened in between."""
        request = jobs.request()
        jobs.start(request)
        found: list[Any] = []
        close = JobStore.close

        def other(commit: Any) -> Any:
            answers: list[Any] = []

            def commit_and_close(store: JobStore) -> None:
                if not answers:
                    answers.append(commit())
                close(store)

            monkeypatch.setattr(JobStore, "close", commit_and_close)
            jobs.context(request).store.cancel()
            found.append(advance(jobs.context(request), jobs.settings))
            return answers[0]

        catalog.faults.append(other)
        advance(jobs.context(request), jobs.settings)
        [step] = found
        assert_converted(stream, report_of(step))
        assert len(made(stream, report_of(step))) == 1
