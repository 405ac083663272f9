"""Compactions on the fleet while others write, compact and convert: the rows are those of the writers alone."""

from __future__ import annotations

import threading

import pytest

from producer.common.settings import Settings
from producer.model.job import Operation, Report, Request, Status
from producer.state.commit_history import ROUND
from tasks.local import LocalEngine
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import left_behind, rows_of, snapshots_of, streamed
from tests.fleet.writers import Writer, compactions, judge
from tests.support import oracle

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

WORKERS = ("red", "blue")
EVERYTHING = {"rewrite-all": "true"}


V2, V3 = (pytest.param(version, id=f"v{version}") for version in (2, 3))
#: The other version of what differs in little but time.
SLOW_V2, SLOW_V3 = (pytest.param(version, id=f"v{version}", marks=pytest.mark.slow) for version in (2, 3))


def _whole(fleet: LocalFleet, writer: Writer) -> None:
    """The rows are those of the writer, no snapshot of a job has changed any, and nothing is left of jobs."""
    fleet.settle()
    assert oracle.rows(writer.table.table) == writer.rows
    judge(writer.table.table)
    assert left_behind(writer.table.table) == []
    assert fleet.records(writer.table.identifier) == []


@pytest.mark.parametrize("format_version", [V2, V3])
def test_a_writer_that_goes_on(fleet: LocalFleet, format_version: int) -> None:
    """It appends and upserts all the time, and deletes rows of the inputs by position when they are planned."""
    writer = Writer.of(fleet.catalog, f"db.goeson{format_version}", format_version)
    with fleet.processes.halted(*WORKERS):
        job = fleet.fleet.compact(writer.table.identifier)
        plan = fleet.planned(job.id)
        assert len(plan.units) == 1
        writer.delete_positions(1)
        writer.upsert([10, 11])
    writer.goes_on(lambda: job.status.ended)
    report = job.wait(60)
    assert (report.status, report.failed_units) == (Status.COMMITTED, 0), report
    assert compactions(writer.table.table) == [job.id]
    (made,) = [s for s in writer.table.table.metadata.snapshots if s.snapshot_id == report.snapshot_id]
    assert made.summary is not None
    assert made.summary[ROUND] == "1", "the first round met rows that were deleted"
    _whole(fleet, writer)


@pytest.mark.parametrize("format_version", [V2, SLOW_V3])
def test_rows_that_are_deleted_by_position_cost_their_unit_a_round(fleet: LocalFleet, format_version: int) -> None:
    name = f"db.touched{format_version}"
    table = streamed(fleet.catalog, name, partitions=2, files=4, upserts=1, format_version=format_version)
    with fleet.processes.halted(*WORKERS):
        job = fleet.fleet.compact(name)
        plan = fleet.planned(job.id)
        assert [unit.label for unit in plan.units] == ["part=0", "part=1"]
        paths = [file.path for file in table.data_files() if file.partition[0] == 0]
        delete = table.delete_vector if format_version == 3 else table.delete_positions
        delete({paths[0]: [0, 2], paths[2]: [1]})
        rows = rows_of(table.table)
    report = job.wait(100)
    assert (report.status, report.failed_units, report.units) == (Status.COMMITTED, 0, 3), report
    rounds = [s.summary[ROUND] for s in table.table.metadata.snapshots[-2:] if s.summary is not None]
    assert (len(snapshots_of(table.table, job.id)), rounds) == (2, ["0", "1"])
    assert rows_of(table.table) == rows
    judge(table.table)
    assert table.delete_files() == []
    assert len(table.data_files()) == 2
    assert left_behind(table.table) == []
    assert fleet.records(name) == []


class TestAnotherCompactor:
    """A job of another fleet, which knows nothing of this one's locks."""

    @pytest.fixture
    def rival(self) -> LocalEngine:
        """It works in this process."""
        return LocalEngine(Settings(_env_file=None, broker_url="", cores=1, heap_mb=512, unit_mb=1))

    @pytest.mark.parametrize("format_version", [V2, SLOW_V3])
    def test_that_was_faster(self, fleet: LocalFleet, format_version: int, rival: LocalEngine) -> None:
        writer = Writer.of(fleet.catalog, f"db.slower{format_version}", format_version)
        with fleet.processes.halted(*WORKERS):
            job = fleet.fleet.compact(writer.table.identifier)
            fleet.planned(job.id)
            other = rival.run(_request(writer))
            writer.upsert([10, 11])
        report = job.wait(100)
        assert other.status == Status.COMMITTED, other
        assert report.status == Status.NOTHING_TO_DO, report
        assert report.reason
        assert compactions(writer.table.table) == [other.job]
        _whole(fleet, writer)

    @pytest.mark.parametrize("format_version", [SLOW_V2, V3])
    def test_at_the_same_time(self, fleet: LocalFleet, format_version: int, rival: LocalEngine) -> None:
        """Both rewrite everything, again and again, while rows come and go: whoever loses plans again or gives up."""
        writer = Writer.of(fleet.catalog, f"db.rivals{format_version}", format_version)
        others: list[Report] = []
        done = threading.Event()

        def compete() -> None:
            try:
                others.extend(rival.run(_request(writer, EVERYTHING)) for _ in range(2))
            finally:
                done.set()

        thread = threading.Thread(target=compete)
        jobs = [fleet.fleet.compact(writer.table.identifier, options=EVERYTHING)]
        thread.start()
        jobs.append(fleet.fleet.compact(writer.table.identifier, tier="full"))
        writer.goes_on(lambda: done.is_set() and all(job.status.ended for job in jobs))
        thread.join()
        reports = [*(job.wait(60) for job in jobs), *others]
        assert len(reports) == 4
        for report in reports:
            assert report.status in {Status.COMMITTED, Status.NOTHING_TO_DO, Status.PARTIAL, Status.FAILED}
            assert report.status == Status.COMMITTED or report.reason, report
        assert any(report.status == Status.COMMITTED for report in reports), reports
        _whole(fleet, writer)


@pytest.mark.parametrize("format_version", [V2, SLOW_V3])
def test_conversions_and_compactions_take_turns(fleet: LocalFleet, format_version: int) -> None:
    """Of one table one job runs, whatever it does; the others wait for it, in the order in which they came."""
    writer = Writer.of(fleet.catalog, f"db.turns{format_version}", format_version)
    name = writer.table.identifier
    with fleet.processes.halted(*WORKERS):
        jobs = [
            fleet.fleet.convert(name, where="part = 0"),
            fleet.fleet.compact(name, where="part = 1", options=EVERYTHING),
            fleet.fleet.convert(name),
            fleet.fleet.compact(name, options=EVERYTHING),
        ]
        fleet.planned(jobs[0].id)
        fleet.processes.wait_for("look at every job", lambda: not fleet.redis.llen("plan"))
        assert [job.status for job in jobs] == [Status.STAGING, *[Status.QUEUED] * 3]
    writer.goes_on(lambda: all(job.status.ended for job in jobs))
    reports = [job.wait(60) for job in jobs]
    assert [report.status for report in reports] == [Status.COMMITTED] * 4, reports
    assert [report.failed_units for report in reports] == [0] * 4
    made = [s.summary["icefleet.job-id"] for s in writer.table.table.metadata.snapshots if s.summary is not None]
    assert list(dict.fromkeys(job for job in made if job)) == [job.id for job in jobs]
    assert compactions(writer.table.table) == [jobs[1].id, jobs[3].id]
    _whole(fleet, writer)


def _request(writer: Writer, options: dict[str, str] | None = None) -> Request:
    return Request.new(writer.table.identifier, operation=Operation.COMPACT, options=options)
