"""Jobs on several branches of one table at once: each is found by itself, and ends by itself."""

from __future__ import annotations

import pytest

from producer.fleet import Fleet
from producer.job import Job
from producer.model.job import Status
from tasks.lifecycle.outcomes import Stage
from tasks.messaging.sweeper import current_jobs
from tasks.testing import StreamTable
from tests.support.commits import equality
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced

NAMES = ["audit", "feature/x=1 ü", "Audit"]


@pytest.mark.parametrize("stream", [2], indirect=True)
@pytest.mark.parametrize("named", NAMES)
def test_a_sweeper_finds_each(stream: StreamTable, jobs: Jobs, named: str) -> None:
    """It has nothing but the table when Redis is lost."""
    head = stream.table.metadata.refs["main"].snapshot_id
    for name in NAMES:
        with stream.table.manage_snapshots() as refs:
            refs.create_branch(head, name)
    asked = [jobs.request(branch=branch) for branch in ("main", named)]
    steps = [jobs.start(request) for request in asked]
    assert all(isinstance(step, Stage) for step in steps)
    found = {request.job: (request, store) for request, store in current_jobs(jobs.settings)}
    assert found.keys() == {request.job for request in asked}
    assert all(store.latest_plan() is not None for _, store in found.values())
    assert {job.id for job in Fleet(jobs.settings).jobs("db.t")} == found.keys()
    assert jobs.end(steps[1]).status is Status.COMMITTED
    assert [request for request, _ in current_jobs(jobs.settings)] == asked[:1]
    assert jobs.end(steps[0]).status is Status.COMMITTED
    assert list(current_jobs(jobs.settings)) == []
    assert equality(stream) == equality(stream, named) == []
    assert unreferenced(stream.table) == set()


@pytest.mark.parametrize("stream", [2], indirect=True)
def test_a_branch_that_was_dropped_meanwhile_leaves_no_note(stream: StreamTable, jobs: Jobs) -> None:
    head = stream.table.metadata.refs["main"].snapshot_id
    with stream.table.manage_snapshots() as refs:
        refs.create_branch(head, "audit")
    step = jobs.start(jobs.request(branch="audit"))
    with stream.table.manage_snapshots() as refs:
        refs.remove_branch("audit")
    assert jobs.end(step).status is Status.FAILED
    assert unreferenced(stream.table) == set()


@pytest.mark.parametrize("stream", [2], indirect=True)
def test_reports_that_no_redis_keeps(stream: StreamTable, jobs: Jobs) -> None:
    """The report of a job on one branch does not take the place of another's."""
    head = stream.table.metadata.refs["main"].snapshot_id
    with stream.table.manage_snapshots() as refs:
        refs.create_branch(head, "audit")
    asked = [jobs.request(branch=branch, where="p = 'z'") for branch in ("main", "audit")]
    for request in asked:
        report = jobs.run(request)
        jobs.context(request).store.write_last(report, request.branch)
    for request in asked:
        assert Job(request.job, jobs.settings).status is Status.NOTHING_TO_DO
