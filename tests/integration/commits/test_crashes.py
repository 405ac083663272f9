"""A job whose process dies at any moment is taken up and comes to the same end, and nothing is left behind."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.snapshots import Operation

from producer.model.job import Status
from producer.state.commit_history import snapshots_of
from tasks.testing import RowDelta, StreamTable
from tests.support import oracle
from tests.support.faulty import FaultyCatalog, Jobs, lose, meanwhile, unreferenced
from tests.support.traps import Killed, Trap


@pytest.fixture
def trap(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Trap:
    return Trap(monkeypatch)


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def table(catalog: FaultyCatalog, number: int, version: int) -> StreamTable:
    """Rows 1 to 6 in two files, without 2 and 5."""
    stream = StreamTable.create(catalog, f"db.t{number}", ids().schema, format_version=version)
    stream.append(ids(1, 2, 3))
    stream.append(ids(4, 5, 6))
    stream.delete_where_equal(ids(2, 5), ["id"])
    return stream


ROWS = Counter({(n,): 1 for n in (1, 3, 4, 6)})


def left_behind(stream: StreamTable) -> set[str]:
    """What nothing refers to; a metadata file that never became the table's is its catalog's to mend."""
    return {path for path in unreferenced(stream.table) if not path.endswith(".metadata.json")}


def equality(stream: StreamTable) -> list[str]:
    return [f.path for f in stream.delete_files() if f.content == DataFileContent.EQUALITY_DELETES]


CASES = [pytest.param(v, torn, id=f"v{v}-{'torn' if torn else 'before'}") for v in (2, 3) for torn in (False, True)]


@pytest.mark.parametrize(("version", "torn"), CASES)
def test_a_job_that_succeeds(catalog: FaultyCatalog, jobs: Jobs, trap: Trap, version: int, torn: bool) -> None:
    for number in itertools.count():
        stream = table(catalog, number, version)
        request = jobs.request(stream.identifier)
        trap.arm(number, torn=torn)
        with suppress(Killed):
            jobs.run(request)
        trap.revive()
        jobs.wait(400)
        report = jobs.run(request)
        moment = f"killed at change {number}"
        assert report.status is Status.COMMITTED, (moment, report)
        assert report.removed_equality_delete_files == 1, moment
        assert len(snapshots_of(stream.table.metadata, request.job)) == 1, moment
        assert (equality(stream), oracle.rows(stream.table)) == ([], ROWS), moment
        assert left_behind(stream) == set(), moment
        if not trap.sprung:
            break
    assert number > 20


@pytest.mark.parametrize(("version", "torn"), CASES)
def test_a_job_that_fails(catalog: FaultyCatalog, jobs: Jobs, trap: Trap, version: int, torn: bool) -> None:
    """Whatever is left of it is deleted, and none of it ever committed."""
    jobs.settings = jobs.settings.model_copy(update={"commit_attempts": 1})
    for number in itertools.count():
        stream = table(catalog, number, version)
        request = jobs.request(stream.identifier)
        trap.arm(number, torn=torn)
        catalog.faults.append(lose)
        with suppress(Killed):
            jobs.run(request)
        trap.revive()
        jobs.wait(400)
        survived = not catalog.faults
        report = jobs.run(request)
        catalog.faults.clear()
        moment = f"killed at change {number}"
        if not trap.sprung:
            break
        # Killed at its very end, the job is gone, and the same request is a new one.
        if report.status is Status.COMMITTED:
            assert survived, moment
            assert equality(stream) == [], moment
        else:
            assert report.status is Status.FAILED, (moment, report)
            assert report.reason is not None
            assert "nothing was committed" in report.reason, moment
            assert len(equality(stream)) == 1, moment
            assert snapshots_of(stream.table.metadata, request.job) == []
        assert oracle.rows(stream.table) == ROWS, moment
        assert left_behind(stream) == set(), moment
    assert number > 20


@pytest.mark.parametrize("torn", [False, True], ids=["before", "torn"])
def test_a_job_of_two_rounds(catalog: FaultyCatalog, jobs: Jobs, trap: Trap, torn: bool) -> None:
    """A compaction sends its delete back to planning while another writer's vector is merged."""
    for number in itertools.count():
        stream = table(catalog, number, 3)
        first, second = stream.data_files()

        def compact(stream: StreamTable = stream, first: Any = first, second: Any = second) -> None:
            trap.at, at = None, trap.at
            new = stream.write_data(ids(1, 2, 3), sequence_number=1)
            stream.commit(RowDelta(new, [first]), operation=Operation.REPLACE)
            stream.delete_vector({second.path: [2]})
            trap.at = at

        request = jobs.request(stream.identifier)
        trap.arm(number, torn=torn)
        catalog.faults.append(meanwhile(compact))
        with suppress(Killed):
            jobs.run(request)
        trap.revive()
        jobs.wait(400)
        report = jobs.run(request)
        catalog.faults.clear()
        moment = f"killed at change {number}"
        assert report.status is Status.COMMITTED, (moment, report)
        assert (equality(stream), oracle.rows(stream.table)) == ([], ROWS - Counter({(6,): 1})), moment
        assert len([f for f in stream.delete_files() if f.is_vector]) == 2, moment
        assert left_behind(stream) == set(), moment
        if not trap.sprung:
            break
    assert number > 40


@pytest.mark.parametrize("version", [2, 3])
def test_a_job_that_is_cancelled(catalog: FaultyCatalog, jobs: Jobs, trap: Trap, version: int) -> None:
    for number in itertools.count():
        stream = table(catalog, number, version)
        request = jobs.request(stream.identifier)
        step = jobs.start(request)
        jobs.context(request).store.cancel()
        trap.arm(number, torn=False)
        with suppress(Killed):
            jobs.end(step)
        trap.revive()
        jobs.wait(400)
        moment = f"killed at change {number}"
        gone = not jobs.context(request).store.is_cancelled()
        report = jobs.run(request)
        if not (gone and report.status is Status.COMMITTED):  # killed at its very end, the same request is a new one
            assert report.status is Status.CANCELLED, (moment, report)
            assert len(equality(stream)) == 1, moment
        assert oracle.rows(stream.table) == ROWS, moment
        assert left_behind(stream) == set(), moment
        if not trap.sprung:
            break
    assert number > 5
