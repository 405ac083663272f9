"""A job whose process dies at any moment is taken up and comes to the same end, and nothing is left behind."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest
from pyiceberg.io import PY_IO_IMPL
from pyiceberg.table.snapshots import Operation

from producer.model.job import Operation as Work
from producer.model.job import Request, Status
from producer.state.commit_history import snapshots_of
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.commits import equality
from tests.support.compacting import asked
from tests.support.crashes import ROWS, Crashes, SavedTable, ids
from tests.support.faulty import Fault, FaultyCatalog, Jobs, lose, meanwhile
from tests.support.listing_io import LISTING_IO
from tests.support.traps import Killed, Trap
from tests.support.unreferenced import unreferenced


@pytest.fixture
def crashes(catalog: FaultyCatalog, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Crashes:
    return Crashes(catalog, jobs, Trap(monkeypatch))


def request_of(jobs: Jobs, work: Work, stream: StreamTable) -> Request:
    return jobs.request(stream.identifier) if work is Work.CONVERT else asked(jobs, table=stream.identifier)


#: Operation, format version, whether the file that is being written is there and empty, how many changes to storage the
#: job makes at least, and whether the storage is an object store, where a file is there as a whole or not at all.
CASES = [
    pytest.param(Work.CONVERT, 2, False, 20, False, id="convert-v2-before"),
    pytest.param(Work.CONVERT, 2, True, 20, False, id="convert-v2-torn"),
    pytest.param(Work.CONVERT, 2, False, 20, True, id="convert-v2-objects"),
    pytest.param(Work.CONVERT, 3, True, 20, False, id="convert-v3-torn"),
    pytest.param(Work.CONVERT, 3, False, 20, True, id="convert-v3-objects"),
    pytest.param(Work.COMPACT, 2, False, 15, True, id="compact-v2-objects"),
    pytest.param(Work.COMPACT, 3, True, 15, False, id="compact-v3-torn"),
]


@pytest.mark.parametrize(("work", "version", "torn", "changes", "objects"), CASES)
def test_a_job_that_succeeds(
    crashes: Crashes, jobs: Jobs, work: Work, version: int, torn: bool, changes: int, objects: bool
) -> None:
    if objects:
        crashes.catalog.properties[PY_IO_IMPL] = LISTING_IO
    for crash in crashes.each(version, partial(request_of, jobs, work), torn=torn):
        stream, report = crash.stream, crash.report
        assert report.status is Status.COMMITTED, (crash.moment, report)
        assert len(snapshots_of(stream.table.metadata, crash.request.job)) == 1, crash.moment
        if work is Work.CONVERT:
            assert report.removed_equality_delete_files == 1, crash.moment
            assert equality(stream) == [], crash.moment
        else:
            assert (report.rewritten_data_files, report.removed_delete_files) == (2, 1), crash.moment
            assert stream.delete_files() == [], crash.moment
        crash.assert_rows()
    assert crash.number > changes


@pytest.mark.parametrize(("work", "version", "torn", "changes", "objects"), CASES)
def test_a_job_that_fails(
    crashes: Crashes, jobs: Jobs, work: Work, version: int, torn: bool, changes: int, objects: bool
) -> None:
    """Whatever is left of it is deleted, and none of it ever committed."""
    if objects:
        crashes.catalog.properties[PY_IO_IMPL] = LISTING_IO
    jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})
    for crash in crashes.each(version, partial(request_of, jobs, work), torn=torn, fault=lambda stream: lose):
        if not crash.killed:
            break
        stream, report = crash.stream, crash.report
        # Killed at its very end, the job has ended, and the same request is a new one.
        if report.status is Status.COMMITTED:
            assert not crash.fault_left, crash.moment
            assert equality(stream) == [], crash.moment
        else:
            assert report.status is Status.FAILED, (crash.moment, report)
            assert report.reason is not None
            assert "nothing was committed" in report.reason, crash.moment
            assert len(equality(stream)) == 1, crash.moment
            assert snapshots_of(stream.table.metadata, crash.request.job) == []
        if work is Work.COMPACT:
            assert len(stream.data_files()) == (1 if report.status is Status.COMMITTED else 2), crash.moment
        crash.assert_rows()
    assert crash.number > changes


@pytest.mark.parametrize("torn", [False, True], ids=["before", "torn"])
def test_a_conversion_of_two_rounds(crashes: Crashes, jobs: Jobs, torn: bool) -> None:
    """A compaction sends its delete back to planning while another writer's vector is merged."""

    def compaction(stream: StreamTable) -> Fault:
        first, second = stream.data_files()

        def compact() -> None:
            with crashes.trap.open():
                new = stream.write_data(ids(1, 2, 3), sequence_number=1)
                stream.commit(RowDelta(new, [first]), operation=Operation.REPLACE)
                stream.delete_vector({second.path: [2]})

        return meanwhile(compact)

    request = partial(request_of, jobs, Work.CONVERT)
    for crash in crashes.each(3, request, torn=torn, fault=compaction):
        assert crash.report.status is Status.COMMITTED, (crash.moment, crash.report)
        assert equality(crash.stream) == [], crash.moment
        assert len([f for f in crash.stream.delete_files() if f.is_vector]) == 2, crash.moment
        crash.assert_rows(ROWS - Counter({(6,): 1}))
    assert crash.number > 40


def test_a_compaction_of_two_rounds(crashes: Crashes, jobs: Jobs) -> None:
    """What was written in the first round is deleted, whichever process deletes it."""

    def deletion(stream: StreamTable) -> Fault:
        first, _ = stream.data_files()

        def delete() -> None:
            with crashes.trap.open():
                stream.delete_vector({first.path: [0]})

        return meanwhile(delete)

    request = partial(request_of, jobs, Work.COMPACT)
    for crash in crashes.each(3, request, torn=True, fault=deletion):
        assert crash.report.status is Status.COMMITTED, (crash.moment, crash.report)
        assert crash.stream.delete_files() == [], crash.moment
        crash.assert_rows(ROWS - Counter({(1,): 1}))
    assert crash.number > 25


@pytest.mark.parametrize("version", [2, 3])
def test_a_job_that_is_cancelled(crashes: Crashes, catalog: FaultyCatalog, jobs: Jobs, version: int) -> None:
    trap, saved = crashes.trap, SavedTable(catalog, version)
    for number in itertools.count():
        stream = saved.restore()
        request = jobs.request(stream.identifier)
        step = jobs.start(request)
        jobs.context(request).store.cancel()
        trap.arm(number, torn=False)
        with suppress(Killed):
            jobs.end(step)
        trap.revive()
        jobs.wait(400)
        moment = f"killed at change {number}"
        ended = not jobs.context(request).store.is_cancelled()
        report = jobs.run(request)
        if not (ended and report.status is Status.COMMITTED):  # killed at its very end, the request is a new one
            assert report.status is Status.CANCELLED, (moment, report)
            assert len(equality(stream)) == 1, moment
        assert oracle.rows(stream.table) == ROWS, moment
        assert unreferenced(stream.table, metadata_files=False) == set(), moment
        if not trap.sprung:
            break
    assert number > 5
