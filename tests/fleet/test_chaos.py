"""Workers, committers and Redis lost while they work: a job still ends, with one snapshot at most and nothing left."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from producer.broker.queue import Messenger
from producer.broker.registry import JobRegistry
from producer.model.job import Report, Request, Status
from producer.model.staged import Staged
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Ended, Stage
from tasks.lifecycle.rounds import advance, begin
from tests.fleet.battered import ATTEMPTS, WORKERS, Case, complete
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import equality_deletes, left_behind, rows_of, snapshots_of, stuck

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]


@pytest.fixture
def fleet(battered: LocalFleet, monkeypatch: pytest.MonkeyPatch) -> LocalFleet:
    """The fleet, with whatever the last test took from it put back."""
    battered.attach(monkeypatch)
    complete(battered)
    return battered


# -- workers -----------------------------------------------------------------------------------------------------------


def test_a_child_that_is_killed_hands_its_unit_on(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "child", units=3)
    with stuck(case.table, 1):
        job = case.start()
        _, child = fleet.child_at(job.id, 1)
        assert fleet.attempt(job.id, 1).number == 0
    fleet.kill_child(child)
    assert fleet.attempt(job.id, 1, 1).number == 1
    case.ended(job)


def test_a_machine_that_is_lost_hands_its_unit_on(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "machine", units=3)
    with stuck(case.table, 1):
        job = case.start()
        lost, _ = fleet.child_at(job.id, 1)
        fleet.processes.kill(lost)
    fleet.let_deliveries_expire()
    fleet.start_worker(lost)
    case.ended(job)


def test_a_unit_that_kills_whoever_takes_it_fails_and_the_others_are_committed(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "poison", units=3)
    deletes = equality_deletes(case.table)
    with ThreadPoolExecutor(1) as pool, stuck(case.table, 1):
        told = pool.submit(fleet.json, "convert", "db.poison", status=3)
        job = fleet.processes.wait_for("job", lambda: fleet.current("db.poison"))
        for number in range(ATTEMPTS):
            fleet.attempt(job, 1, number)
            fleet.kill_child(fleet.child_at(job, 1)[1])
        report = told.result(100)
    assert report["status"] == "partial"
    assert (report["units"], report["failed_units"]) == (3, 1)
    (failure,) = report["failures"]
    assert failure["partition"] == "part=1"
    assert failure["reason"].startswith(f"its worker died {ATTEMPTS} times, on ")
    assert report["removed_equality_delete_files"] == deletes * 2 // 3
    assert equality_deletes(case.table) == deletes // 3
    assert snapshots_of(case.table.table, job) == [report["snapshot_id"]]
    fleet.settle()
    case.is_whole()
    rest = fleet.json("convert", "db.poison")
    assert (rest["status"], rest["units"], equality_deletes(case.table)) == ("committed", 1, 0)
    case.is_whole()


def test_a_worker_that_is_asked_to_stop_ends_its_unit(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "drain", units=1)
    for name in WORKERS:
        fleet.processes.terminate(name)
        assert fleet.processes.ended(name) == 0, "an idle worker stops at once"
    fleet.start_worker("green")
    fleet.answering("green", "committer")
    job = case.start()
    fleet.attempt(job.id, 0)
    fleet.processes.terminate("green")
    assert fleet.processes.ended("green", 120) == 0
    report = case.ended(job)
    assert report.units == 1
    assert fleet.processes.log("green").read_text().count("icefleet.convert[") == 2, "received once, succeeded once"


def test_what_is_left_of_a_job_that_has_been_reported_is_deleted(fleet: LocalFleet) -> None:
    """Its table could not be read for a while: nobody could clean up when it was given up."""
    case = Case.of(fleet, "reported", units=2)
    with fleet.processes.halted(*WORKERS):
        job = case.start()
        fleet.planned(job.id)
        failed = Report(job=job.id, table=case.table.identifier, status=Status.FAILED, reason="it could not be read")
        JobRegistry(fleet.settings).save_report(failed)
        fleet.processes.wait_for("clean-up", lambda: not fleet.records(case.table.identifier))
    assert job.wait(10) == failed
    fleet.settle()
    case.is_whole()
    assert equality_deletes(case.table) > 0


# -- messages that come twice ------------------------------------------------------------------------------------------


def test_every_message_twice(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "twice", units=2)
    job = case.start()
    plan = fleet.planned(job.id)
    messenger = Messenger(fleet.settings)
    for _ in range(2):
        messenger.stage(plan, range(2))
        messenger.commit(job.id, plan.location)
    case.ended(job)


@pytest.mark.parametrize("format_version", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_unit_twice_side_by_side(fleet: LocalFleet, tmp_path: Path, format_version: int) -> None:
    case = Case.of(fleet, f"racing{format_version}", units=1, format_version=format_version)
    fleet.processes.kill("committer")  # its sweeper would find the job and have it done
    request = Request.new(case.table.identifier)
    step = begin(request, fleet.settings)
    assert isinstance(step, Stage)
    arguments = ["-m", "tests.fleet.stage_unit", request.job, step.plan.location, "0", str(tmp_path), "2"]
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: fleet.python(*arguments, timeout=120), range(2)))
    for delivery in done:
        assert delivery.returncode == 0, delivery.stderr
        assert Staged.model_validate_json(delivery.stdout).new_positions > 0
    step = advance(JobContext.open(request.job), fleet.settings)
    assert isinstance(step, Ended)
    assert step.report is not None
    assert step.store is not None
    step.store.forget()
    assert snapshots_of(case.table.table, request.job) == [step.report.snapshot_id]
    assert equality_deletes(case.table) == 0
    case.is_whole()


def test_two_committers_side_by_side(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "committers", units=2)
    fleet.processes.kill("committer")
    reached = fleet.start_paused_committer("slow", "before")
    job = case.start()
    fleet.processes.wait_for("committer before the swap", reached.exists)
    fleet.start_committer("committer", "--beat")
    assert job.wait(60).status == Status.COMMITTED
    assert reached.exists()
    reached.unlink()
    case.ended(job)
    fleet.processes.terminate("slow")
    assert fleet.processes.ended("slow") == 0


def test_a_cancelled_job_leaves_a_commit_on_its_way_alone(fleet: LocalFleet) -> None:
    """The commit may still happen: what it refers to must not be deleted under it."""
    case = Case.of(fleet, "toolate", units=2)
    fleet.processes.kill("committer")
    reached = fleet.start_paused_committer("decided", "before")
    job = case.start()
    fleet.processes.wait_for("committer before the swap", reached.exists)
    job.cancel()
    fleet.start_committer("committer", "--beat")
    fleet.answering("committer")
    waits = "waits for its units"
    fleet.processes.wait_for(waits, lambda: waits in fleet.processes.log("committer").read_text().split("ready.")[-1])
    assert not job.status.ended
    reached.unlink()
    case.ended(job)
    fleet.processes.kill("decided")


# -- committers and Redis ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["before", "after"])
def test_a_committer_that_is_killed_at_the_swap(fleet: LocalFleet, at: str) -> None:
    case = Case.of(fleet, f"{at}swap", units=2)
    fleet.processes.kill("committer")
    reached = fleet.start_paused_committer(f"doomed-{at}", at)
    job = case.start()
    fleet.processes.wait_for("committer at the swap", reached.exists)
    fleet.processes.kill(f"doomed-{at}")
    assert len(snapshots_of(case.table.table, job.id)) == (1 if at == "after" else 0)
    fleet.start_committer("committer", "--beat")
    case.ended(job)


def test_a_job_whose_snapshot_has_expired_before_its_end(fleet: LocalFleet) -> None:
    """What it committed is live in later snapshots and stays, although none carries its name any more."""
    case = Case.of(fleet, "expired", units=2)
    fleet.processes.kill("committer")
    reached = fleet.start_paused_committer("doomed-expired", "after")
    job = case.start()
    fleet.processes.wait_for("committer after the swap", reached.exists)
    fleet.processes.kill("doomed-expired")
    later = pa.table({"id": [-1], "part": pa.array([0], pa.int32()), "note": ["later"]})
    case.table.append(later)
    table = case.table.table
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != table.metadata.current_snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    fleet.start_committer("committer", "--beat")
    assert job.wait(60).status in {Status.COMMITTED, Status.NOTHING_TO_DO}
    assert equality_deletes(case.table) == 0
    assert rows_of(case.table.table).num_rows == case.rows.num_rows + 1
    assert rows_of(case.table.table).slice(1) == case.rows
    assert fleet.records(case.table.identifier) == []


def test_redis_forgets_everything(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "flushed", units=3)
    with stuck(case.table, 1):
        job = case.start()
        _, child = fleet.child_at(job.id, 1)
        fleet.redis.flushall()
    try:
        case_report = job.wait(100)  # the other worker does it all: that one reads for ever
        assert case_report.status == Status.COMMITTED
    finally:
        fleet.kill_child(child)
    case.ended(job)


def test_messages_that_are_lost_are_sent_again(fleet: LocalFleet) -> None:
    """Redis is there all the time, and nobody is told."""
    case = Case.of(fleet, "lostmessages", units=4)
    with fleet.processes.halted(*WORKERS):
        job = case.start()
        fleet.planned(job.id)
        fleet.processes.wait_for("messages", lambda: fleet.redis.llen("convert"))
        fleet.redis.delete("convert")
    case.ended(job)


def test_a_plan_message_that_is_lost_is_sent_again(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "lostplan", units=1)
    with fleet.processes.halted("committer"):
        fleet.redis.delete("plan")
        job = case.start()
        while not fleet.redis.delete("plan"):  # whoever was stopped may still be given one message
            Messenger(fleet.settings).plan(Request(job=job.id, table=case.table.identifier))
    case.ended(job)


def test_messages_that_wait_are_not_sent_again(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "waiting", units=4)
    with fleet.processes.halted(*WORKERS):
        job = case.start()
        fleet.planned(job.id)
        time.sleep(6 * fleet.settings.sweep_seconds)
        assert fleet.redis.llen("convert") <= 4, "those that were on their way to who was stopped, and the others"
    case.ended(job)


# -- people ------------------------------------------------------------------------------------------------------------


def test_a_job_that_is_cancelled_commits_nothing(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "cancelled", units=4)
    with stuck(case.table, 1):
        job = case.start()
        _, child = fleet.child_at(job.id, 1)
        assert "being cancelled" in fleet.icefleet("cancel", job.id).stdout
        report = job.wait(60)
    assert report.status == Status.CANCELLED
    assert report.snapshot_id is None
    fleet.kill_child(child)
    fleet.settle()
    assert len(case.table.table.metadata.snapshots) == case.snapshots
    case.is_whole()
    assert "cancelled" in fleet.icefleet("cancel", job.id).stdout
    again = case.start()
    case.ended(again)


def test_units_that_run_while_the_job_is_cancelled_withdraw(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "withdrawn", units=4)
    job = case.start()
    fleet.attempt(job.id, 0)
    job.cancel()
    assert job.wait(60).status == Status.CANCELLED
    fleet.settle()
    assert len(case.table.table.metadata.snapshots) == case.snapshots
    case.is_whole()


def test_a_stream_that_goes_on_is_no_conflict(fleet: LocalFleet) -> None:
    case = Case.of(fleet, "busy", units=4)
    job = case.start()
    written = 0
    while not job.status.ended:
        ids = pa.array(range(written, written + 20), pa.int64())
        parts = pa.array([written % 4] * 20, pa.int32())
        case.table.upsert(pa.table({"id": ids, "part": parts, "note": ["later"] * 20}), ["id"])
        written += 10
        time.sleep(0.1)  # a busy stream, yet not one that keeps the machine from everything else
    report = job.result()
    assert report.status == Status.COMMITTED, report
    table = case.table.table
    assert snapshots_of(table, job.id) == [report.snapshot_id]
    made = table.metadata.snapshot_by_id(report.snapshot_id or 0)
    assert made is not None
    assert rows_of(table, made.snapshot_id) == rows_of(table, made.parent_snapshot_id)
    assert left_behind(table) == []
    again = (
        job.wait() if equality_deletes(case.table) == 0 else case.fleet.fleet.convert(case.table.identifier).wait(60)
    )
    assert again.status == Status.COMMITTED
    assert equality_deletes(case.table) == 0
