"""Workers and committers lost in the middle of a compaction: what they have half written is found and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from producer import Job
from producer.broker.queue import Messenger
from producer.model.job import Operation, Status
from tests.fleet.battered import ATTEMPTS, Case, complete
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import left_behind, rows_of, snapshots_of, stuck

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

#: Small row groups and hardly a buffer: files are on storage long before all of their rows are read.
PIECEMEAL = {"write.parquet.row-group-limit": "5000", "buffer-size": "1024"}


@pytest.fixture
def fleet(battered: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    """The fleet, with whatever the last test took from it put back."""
    battered.attach(monkeypatch)
    complete(battered)
    return battered


def _case(fleet: LocalFleet, name: str, format_version: int = 2) -> Case:
    """A table of two units; nothing deletes rows of the file that comes last in partition 1, so it is read last."""
    case = Case.of(fleet, name, 2, format_version, Operation.COMPACT)
    with case.table.table.transaction() as change:
        change.set_properties(PIECEMEAL)
    case.table.append(pa.table({"id": [-1, -2], "part": pa.array([1, 1], pa.int32()), "note": ["last", "last"]}))
    return replace(case, rows=rows_of(case.table.table), snapshots=case.snapshots + 1)


@contextmanager
def _half_written(case: Case, attempts: int = 1) -> Iterator[Job]:
    """A job whose unit 1 has written a part of its data file and comes no further."""
    with stuck(case.table, 1, newest=True):
        job = case.start()
        _wait_for_part(case, attempts)
        yield job


def _wait_for_part(case: Case, files: int) -> None:
    """Wait until so many attempts have each written a part of a file in partition 1."""
    root = Path(case.table.table.metadata.location.removeprefix("file://"))

    def found() -> bool:
        parts = [root / path for path in left_behind(case.table.table) if path.endswith(".parquet")]
        return sum(path.parent.name == "part=1" and path.stat().st_size > 4 for path in parts) >= files

    case.fleet.processes.wait_for(f"{files} files that are half written", found)


def test_a_child_that_is_killed_while_it_writes(fleet: LocalFleet) -> None:
    case = _case(fleet, "halfchild", 3)
    with _half_written(case) as job:
        _, child = fleet.child_at(job.id, 1)
    fleet.kill_child(child)
    assert fleet.attempt(job.id, 1, 1).number == 1
    case.ended(job)


@pytest.mark.slow
def test_a_machine_that_is_lost_while_it_writes(fleet: LocalFleet) -> None:
    case = _case(fleet, "halfmachine")
    with _half_written(case) as job:
        lost, _ = fleet.child_at(job.id, 1)
        fleet.processes.kill(lost)
    fleet.let_deliveries_expire()
    fleet.start_worker(lost)
    case.ended(job)


def test_a_job_that_is_cancelled_while_it_writes(fleet: LocalFleet) -> None:
    case = _case(fleet, "halfcancelled")
    with _half_written(case) as job:
        _, child = fleet.child_at(job.id, 1)
        job.cancel()
        assert job.wait(60).status == Status.CANCELLED
        fleet.processes.wait_for("clean table", lambda: not _written(case))
    fleet.kill_child(child)
    fleet.settle()
    assert len(case.table.table.metadata.snapshots) == case.snapshots
    case.is_whole()


def _written(case: Case) -> list[str]:
    """What is at the table and in no snapshot, but for the file that a pipe took the place of."""
    return [path for path in left_behind(case.table.table) if not path.endswith(".aside")]


@pytest.mark.slow
def test_a_unit_that_kills_whoever_writes_it(fleet: LocalFleet) -> None:
    case = _case(fleet, "halfpoison")
    with _half_written(case) as job:
        for number in range(ATTEMPTS):
            fleet.attempt(job.id, 1, number)
            _wait_for_part(case, number + 1)
            fleet.kill_child(fleet.child_at(job.id, 1)[1])
        report = job.wait(100)
    assert (report.status, report.units, report.failed_units) == (Status.PARTIAL, 2, 1)
    (failure,) = report.failures
    assert failure.partition == "part=1"
    assert failure.reason.startswith(f"its worker died {ATTEMPTS} times, on ")
    assert snapshots_of(case.table.table, job.id) == [report.snapshot_id]
    fleet.settle()
    case.is_whole()


@pytest.mark.parametrize("at", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_committer_that_is_killed_at_the_swap(fleet: LocalFleet, at: str) -> None:
    """Whoever takes its place finds what it did; messages that come twice do no harm."""
    case = _case(fleet, f"half{at}", 3)
    fleet.processes.kill("committer")
    reached = fleet.start_paused_committer(f"doomed-{at}", at)
    job = case.start()
    plan = fleet.planned(job.id)
    fleet.processes.wait_for("committer at the swap", reached.exists)
    fleet.processes.kill(f"doomed-{at}")
    assert len(snapshots_of(case.table.table, job.id)) == (1 if at == "after" else 0)
    Messenger(fleet.settings).stage(plan, range(2))
    fleet.start_committer("committer", "--beat")
    case.ended(job)
