"""Commits whose answer is lost: the history is asked before anything else is done."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from producer.common.errors import Refused
from producer.model.job import Report, Status
from tasks.lifecycle.commit import CommitStateUnknown
from tasks.lifecycle.outcomes import Ended
from tasks.lifecycle.rounds import advance, begin
from tasks.testing import StreamTable
from tests.support.commits import ROWS, Create, assert_converted, compact, data, fill, made, on_disk, rows
from tests.support.faulty import (
    Fault,
    FaultyCatalog,
    Jobs,
    lose,
    refused_after,
    report_of,
    unanswered_after,
    unanswered_before,
)
from tests.support.unreferenced import unreferenced


class TestLostAnswers:
    """The history is asked before anything else is done."""

    @pytest.mark.parametrize("fault", [unanswered_after, refused_after])
    def test_after_success_nothing_is_committed_again_or_deleted(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs, fault: Fault
    ) -> None:
        """A refusal too: a gateway may have repeated a request that had succeeded."""
        catalog.faults.append(fault)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == len(catalog.asked) == 1
        assert report.removed_equality_delete_files == 2

    def test_and_a_catalog_that_stays_away_for_a_while(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def away(commit: Any) -> Any:
            catalog.unreachable = 2
            return unanswered_after(commit)

        def away_after(commit: Any) -> Any:
            commit()
            catalog.unreachable = 2
            raise TimeoutError("no answer")

        catalog.faults.append(away_after)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(catalog.asked) == 1

    def test_before_the_commit_it_is_tried_again(self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs) -> None:
        catalog.faults.append(unanswered_before)
        report = jobs.run()
        assert_converted(stream, report)
        assert len(made(stream, report)) == 1
        assert len(catalog.asked) == 2
        assert len(jobs.staged) == 1

    def test_before_the_commit_and_then_lost_races(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        catalog.faults.extend([unanswered_before, lose, unanswered_before, lose])
        report = jobs.run()
        assert_converted(stream, report)
        assert len(catalog.asked) == 5

    def test_merged_vectors_of_an_attempt_that_never_arrived_are_deleted(
        self, create: Create, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        stream = create(3)
        fill(stream)
        catalog.faults.append(unanswered_before)
        report = jobs.run(between=lambda: stream.delete_vector({data(stream)[0].path: [0]}))
        assert_converted(stream, report, ROWS - Counter({(1, "a"): 1}))
        assert len(catalog.asked) == 2

    def test_an_answer_that_never_comes_leaves_the_job_to_be_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 2})
        catalog.faults.extend([unanswered_before] * 2)
        request = jobs.request()
        step = jobs.start(request)
        staged = on_disk(stream)
        with pytest.raises(CommitStateUnknown, match="gave no answer to the commit"):
            jobs.end(step)
        assert staged <= on_disk(stream), "nothing was deleted"
        assert made(stream, Report(job=request.job, table="db.t", status=Status.FAILED)) == []
        report = jobs.run(request)
        assert_converted(stream, report)
        assert len(jobs.staged) == 1

    def test_a_success_without_an_answer_is_found_when_the_job_is_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})

        def away(commit: Any) -> Any:
            commit()
            catalog.unreachable = 5
            raise TimeoutError("no answer")

        catalog.faults.append(away)
        request = jobs.request()
        step = jobs.start(request)
        with pytest.raises(CommitStateUnknown):
            jobs.end(step)
        catalog.unreachable = 0
        stream.append(rows(7))
        report = jobs.run(request)
        assert_converted(stream, report, ROWS + Counter({(7, "a"): 1}))
        assert len(made(stream, report)) == len(catalog.asked) == 1

    def test_a_token_that_expires_leaves_the_job_to_be_taken_up(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def expire(commit: Any) -> Any:
            catalog.denied = 1
            raise CommitFailedException("the branch has moved")

        catalog.faults.append(expire)
        request = jobs.request()
        step = jobs.start(request)
        with pytest.raises(Refused, match="the token has expired"):
            jobs.end(step)
        assert_converted(stream, jobs.run(request))
        assert len(jobs.staged) == 1

    def test_and_so_does_one_that_expires_before_another_round(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        def expire(commit: Any) -> Any:
            answer = commit()
            catalog.denied = 1
            return answer

        catalog.faults.append(expire)
        request = jobs.request()
        step = jobs.start(request)
        compact(stream, data(stream)[:1], rows(1, 2, 3), sequence_number=1)
        with pytest.raises(Refused, match="the token has expired"):
            jobs.end(step)
        report = jobs.run(request)
        assert_converted(stream, report)
        assert len(made(stream, report)) == 2
        assert report.removed_equality_delete_files == 2

    def test_a_success_before_an_upgrade_is_still_one(self, create: Create, catalog: FaultyCatalog, jobs: Jobs) -> None:
        stream = create()
        fill(stream)

        def commit_and_upgrade(commit: Any) -> Any:
            commit()
            stream.upgrade()
            raise TimeoutError("no answer")

        catalog.faults.append(commit_and_upgrade)
        report = jobs.run()
        assert_converted(stream, report)
        assert report.removed_equality_delete_files == 2

    def test_the_same_message_delivered_again_after_the_end(
        self, stream: StreamTable, catalog: FaultyCatalog, jobs: Jobs
    ) -> None:
        request = jobs.request()
        report = jobs.run(request)
        assert advance(jobs.context(request), jobs.settings) == Ended(None)
        again = begin(request, jobs.settings)
        assert isinstance(again, Ended)
        assert (report_of(again).status, report_of(again).snapshot_id) == (Status.COMMITTED, report.snapshot_id)
        assert len(catalog.asked) == 1
        assert unreferenced(stream.table) == set()
