"""What compactions leave: files are deleted when nothing refers to them, and stay while anything does."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from producer.model.job import Status
from producer.state.commit_history import snapshots_of
from tasks.job.cleanup import clean_up
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Stage
from tasks.lifecycle.rounds import begin
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle, plainrewriter
from tests.support.commits import ROWS, rows
from tests.support.compacting import asked, assert_compacted
from tests.support.faulty import Jobs
from tests.support.unreferenced import unreferenced
from workers.model.units import RewriteResult


def test_a_unit_that_runs_while_its_job_ends(stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had noted by then is cleared; it goes on to write, and deletes all of it itself."""
    request = asked(jobs)

    def cancelled_in_the_middle(unit: Any, io: Any, *rest: Any) -> RewriteResult:
        result = plainrewriter.rewrite(unit, io, *rest)
        jobs.context(request).store.cancel()
        jobs.end(Stage(plan, ()))
        for file in result.files[:1]:  # one was on its way to storage when the others were deleted
            with io.new_output(file.path).create() as output:
                output.write(b"late")
        with io.new_output(f"{unit.journal}-0-{len(result.files)}").create() as note:
            note.write(f"{result.files[0].path}-more".encode())
        with io.new_output(f"{result.files[0].path}-more").create() as output:
            output.write(b"later")
        return result

    monkeypatch.setattr("tasks.operations.compact.execute.rewrite", cancelled_in_the_middle)
    step = begin(request, jobs.settings)
    assert isinstance(step, Stage)
    plan = step.plan
    jobs.stage(step)
    assert unreferenced(stream.table) == set()
    assert oracle.rows(stream.table) == ROWS


@pytest.mark.parametrize("replaced", [False, True])
def test_what_was_committed_stays_when_its_snapshot_has_expired(
    stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """The clean-up comes late: others have gone on, and only a tag still refers to what was written."""
    request = asked(jobs)
    kept: list[str] = []

    def late(context: JobContext) -> None:
        [snapshot] = snapshots_of(stream.table.metadata, request.job)
        kept.extend(file.path for file in stream.data_files())
        stream.append(rows(9))
        if replaced:
            later = stream.table.metadata.current_snapshot_id
            assert later is not None
            with stream.table.manage_snapshots() as refs:
                refs.create_tag(later, "kept")
            stream.commit(RowDelta(removed=stream.files()), operation=Operation.DELETE)
        stream.table.maintenance.expire_snapshots().by_id(snapshot.snapshot_id).commit()
        Path(snapshot.manifest_list.removeprefix("file://")).unlink()
        clean_up(context)

    monkeypatch.setattr("tasks.lifecycle.ending.clean_up", late)
    assert jobs.run(request).status is Status.COMMITTED
    assert len(kept) == 2
    assert all(Path(path.removeprefix("file://")).exists() for path in kept)
    assert not {path for path in unreferenced(stream.table) if not path.endswith("avro")}, "that is the expirer's"


def test_what_was_not_committed_goes_while_the_rest_stays(
    stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("producer.planning.compact.planner.bundle", lambda groups, _: [(group,) for group in groups])
    jobs.settings = jobs.settings.model_copy(update={"max_rounds": 1})
    step = jobs.start(asked(jobs))
    stream.remove_files([next(f.path for f in stream.data_files() if f.partition[0] == "b")])
    report = jobs.end(step)
    assert report.status is Status.PARTIAL
    assert len(report.failures) == 1
    assert report.failures[0].reason.startswith("other writers removed file://")
    assert unreferenced(stream.table) == set()
    assert oracle.rows(stream.table) == Counter({(1, "a"): 1, (3, "a"): 1})


def test_after_an_attempt_that_failed(stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = iter([True, False])

    def fails_at_first(unit: Any, io: Any, *rest: Any) -> RewriteResult:
        result = plainrewriter.rewrite(unit, io, *rest)
        if next(broken):
            raise OSError("the disk is full")
        return result

    monkeypatch.setattr("tasks.operations.compact.execute.rewrite", fails_at_first)
    with suppress(Exception):
        jobs.run(request := asked(jobs))
    assert_compacted(stream, jobs.run(request))
