"""A job in one process on which another process works too."""

from __future__ import annotations

import time

import pytest

from producer.common.errors import Failed
from producer.job import JobInterrupted
from producer.model.job import Report, Status
from producer.state.commit_history import snapshots_of
from tasks.lifecycle.outcomes import Stage, Waiting
from tasks.lifecycle.rounds import begin
from tasks.local import LocalEngine
from tests.support.commits import Create, fill
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced


def test_nothing_is_waited_for_without_end(create: Create, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The units of a round that another process has begun never end."""
    stream = create()
    fill(stream)
    request = jobs.request()
    step = begin(request, jobs.settings)
    assert isinstance(step, Stage)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        assert len(pauses) < 100, "it waits for ever"
        jobs.wait(600)

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr("tasks.local.begin", lambda *_: Waiting(step.plan))
    settings = jobs.settings.model_copy(update={"give_up_hours": 2})
    with pytest.raises(Failed, match=r"2 hours.*resume or cancel"):
        LocalEngine(settings).run(request)
    assert len(pauses) == 12
    assert jobs.context(request).store.latest_plan() is not None, "it can be resumed"


@pytest.mark.parametrize("moment", ["begun", "staged"])
def test_a_job_that_another_process_commits(create: Create, jobs: Jobs, moment: str) -> None:
    """The report is the one that the table's history has."""
    stream = create()
    fill(stream)
    request = jobs.request()
    others: list[Report] = []

    def progress(done: int, units: int, _: str) -> None:
        if not others and done == (units if moment == "staged" else 0):
            others.append(LocalEngine(jobs.settings).run(request))

    report = LocalEngine(jobs.settings).run(request, progress)
    (other,) = others
    assert (report.status, report.snapshot_id) == (Status.COMMITTED, other.snapshot_id)
    assert (report.units, report.added_position_deletes) == (other.units, other.added_position_deletes)
    assert len(snapshots_of(stream.table.metadata, request.job)) == 1


def test_an_interrupt_from_the_keyboard_ends_the_job_and_reaches_the_program(create: Create, jobs: Jobs) -> None:
    """A program that works on many tables stops; it would go on with the next."""
    stream = create()
    fill(stream)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(JobInterrupted) as caught:
        LocalEngine(jobs.settings).run(jobs.request(), interrupt)
    assert isinstance(caught.value, KeyboardInterrupt)
    assert caught.value.report.status is Status.CANCELLED
    assert unreferenced(stream.table) == set()


def test_an_error_of_the_callers_progress_is_no_error_of_the_unit(create: Create, jobs: Jobs) -> None:
    """It was tried again, and the unit counted as failed."""
    stream = create()
    fill(stream)
    request = jobs.request()

    def fail(done: int, units: int, detail: str) -> None:
        if "files" in detail:
            raise ValueError("boo")

    with pytest.raises(ValueError, match="boo"):
        LocalEngine(jobs.settings).run(request, fail)
    assert LocalEngine(jobs.settings).run(request).status is Status.COMMITTED
    assert unreferenced(stream.table) == set()


def test_a_job_that_another_process_ends_with_nothing(create: Create, jobs: Jobs) -> None:
    """No report of it is kept, and it is not said to have done anything."""
    stream = create()
    fill(stream)
    request = jobs.request()

    def progress(done: int, units: int, _: str) -> None:
        if done == units:
            jobs.context(request).store.cancel()
            assert LocalEngine(jobs.settings).run(request).status is Status.CANCELLED

    with pytest.raises(Failed, match=r"^Another process has ended convert:.* no snapshot of it\.$"):
        LocalEngine(jobs.settings).run(request, progress)
    assert snapshots_of(stream.table.metadata, request.job) == []
