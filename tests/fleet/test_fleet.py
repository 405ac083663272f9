"""The fleet for real: a table of many units, two workers and a committer in processes of their own."""

from __future__ import annotations

import json
import socket
import time

import pytest

from producer.model.job import Status
from tests.fleet.composefile import free_port
from tests.fleet.converted import PARTITIONS, Converted
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import equality_deletes, inserted, left_behind, metadata_files, rows_of, snapshots_of, streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]


class TestOneJob:
    """What many units come to."""

    def test_was_enqueued_in_milliseconds_and_without_spark(self, converted: Converted) -> None:
        assert converted.enqueued["seconds"] < 0.1
        assert converted.enqueued["imported"] == []

    def test_progress_was_seen(self, converted: Converted) -> None:
        seen = converted.progress
        assert {progress.units for progress in seen if progress.status == Status.STAGING} == {PARTITIONS}
        dones = [progress.done for progress in seen]
        assert dones == sorted(dones)
        assert any(0 < done < PARTITIONS for done in dones), dones
        statuses = [progress.status for progress in seen]
        order = [Status.QUEUED, Status.STAGING, Status.COMMITTING, Status.COMMITTED]
        assert statuses == sorted(statuses, key=order.index)
        assert statuses[-1] == Status.COMMITTED

    def test_every_unit_ran_once_and_both_workers_took_part(self, converted: Converted) -> None:
        assert sum(converted.units.values()) == PARTITIONS
        assert min(converted.units["red"], converted.units["blue"]) >= 2, converted.units
        assert converted.units["committer"] == 0

    def test_report_is_right(self, converted: Converted) -> None:
        report = converted.report
        assert report.status == Status.COMMITTED
        assert (report.units, report.failed_units, report.failures) == (PARTITIONS, 0, ())
        assert report.removed_equality_delete_files == converted.equality_deletes
        added = converted.table.delete_files()
        assert report.added_position_delete_files == len(added)
        assert report.added_position_deletes == sum(file.record_count for file in added)
        assert report.added_dvs == 0
        assert 0 < report.seconds < 200

    def test_made_one_snapshot(self, converted: Converted) -> None:
        table = converted.table.table
        after = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        assert after == [*converted.snapshots, converted.report.snapshot_id]
        assert snapshots_of(table, converted.job.id) == [converted.report.snapshot_id]

    def test_rows_are_the_same_and_equality_deletes_removed(self, converted: Converted) -> None:
        assert rows_of(converted.table.table) == converted.rows
        assert equality_deletes(converted.table) == 0

    def test_pyiceberg_can_scan_the_result(self, converted: Converted) -> None:
        scanned = converted.table.table.scan(selected_fields=("id",)).to_arrow()
        assert sorted(scanned["id"].to_pylist()) == converted.rows["id"].to_pylist()

    def test_nothing_is_left_behind(self, fleet: LocalFleet, converted: Converted) -> None:
        assert left_behind(converted.table.table) == []
        assert fleet.records("db.events") == []

    def test_can_be_looked_up_by_its_id(self, fleet: LocalFleet, converted: Converted) -> None:
        report = converted.report.model_dump(mode="json")
        assert fleet.json("status", converted.job.id) == report
        assert fleet.json("watch", converted.job.id) == report
        assert converted.job.id in fleet.icefleet("status", converted.job.id).stdout
        for arguments in (["jobs"], ["jobs", "db.events"]):
            listed = {row["job"]: row for row in fleet.json(*arguments)}
            assert listed[converted.job.id]["status"] == "committed"

    def test_history_tells_of_it_when_redis_has_forgotten(self, fleet: LocalFleet, converted: Converted) -> None:
        fleet.redis.delete(f"icefleet:report:{converted.job.id}")
        told = fleet.fleet.job(converted.job.id).result()
        same = {"seconds", "reason"}
        assert told.model_dump(exclude=same) == converted.report.model_dump(exclude=same)

    def test_second_run_changes_nothing(self, fleet: LocalFleet, converted: Converted) -> None:
        before = metadata_files(converted.table.table)
        report = fleet.json("convert", "db.events")
        assert report["status"] == "nothing_to_do"
        assert report["reason"] == "there are no equality deletes"
        assert report["snapshot_id"] is None
        assert metadata_files(converted.table.table) == before
        assert left_behind(converted.table.table) == []


@pytest.mark.parametrize("format_version", [2, 3])
def test_no_wait_then_watch(fleet: LocalFleet, format_version: int) -> None:
    name = f"db.later{format_version}"
    table = streamed(fleet.catalog, name, partitions=3, rows=1000, upserts=1, format_version=format_version)
    before, deletes = rows_of(table.table), equality_deletes(table)

    queued = fleet.json("convert", name, "--no-wait")
    assert queued["status"] == "queued"
    report = fleet.json("watch", queued["job"])

    assert report["status"] == "committed"
    assert report["removed_equality_delete_files"] == deletes
    kind = "added_dvs" if format_version == 3 else "added_position_delete_files"
    assert report[kind] == len(table.delete_files()) > 0
    assert rows_of(table.table) == before
    assert equality_deletes(table) == 0
    assert left_behind(table.table) == []


def test_equal_jobs_at_once_are_one(fleet: LocalFleet) -> None:
    """All but the first join the one that waits; what one of them has done the next finds done."""
    table = streamed(fleet.catalog, "db.often", partitions=2, rows=1000, upserts=1)
    jobs = {job.id: job for job in (fleet.fleet.convert("db.often") for _ in range(6))}
    reports = [job.wait(60) for job in jobs.values()]
    assert sorted(report.status for report in reports)[0] == Status.COMMITTED
    assert {report.status for report in reports[1:]} <= {Status.NOTHING_TO_DO}
    assert len([s for s in table.table.metadata.snapshots if s.summary and s.summary["icefleet.job-id"]]) == 1
    assert left_behind(table.table) == []


def test_what_the_fleet_refuses_is_reported(fleet: LocalFleet) -> None:
    """An application that does not look at the table first hears of it from the job."""
    report = fleet.fleet.convert("db.missing").wait(30)
    assert report.status == Status.REFUSED
    assert report.reason is not None
    assert "no table 'db.missing'" in report.reason


def test_command_line_refuses_at_once(fleet: LocalFleet) -> None:
    inserted(fleet.catalog, "db.warm")
    before = fleet.redis.zcard("icefleet:jobs")
    for arguments, word in ((("db.missing",), "no table"), (("db.warm", "--where", "note = 'x'"), "partition")):
        said = fleet.json("convert", *arguments, status=2)
        assert said["status"] == "refused"
        assert word in said["reason"]
    assert fleet.redis.zcard("icefleet:jobs") == before, "nothing was enqueued"


class TestBrokerThatDoesNotAnswer:
    """It is said in a sentence, soon, and nothing is written."""

    def test_nobody_listens(self, fleet: LocalFleet) -> None:
        inserted(fleet.catalog, "db.warm")
        self._refused(fleet, free_port())

    def test_somebody_listens_and_says_nothing(self, fleet: LocalFleet) -> None:
        inserted(fleet.catalog, "db.warm")
        with socket.create_server(("127.0.0.1", 0)) as silent:
            self._refused(fleet, silent.getsockname()[1])

    def _refused(self, fleet: LocalFleet, port: int) -> None:
        started = time.monotonic()
        url = f"redis://:secret@127.0.0.1:{port}/0"
        done = fleet.icefleet("convert", "db.warm", "--json", ICEFLEET_BROKER_URL=url, timeout=60)
        seconds = time.monotonic() - started
        assert done.returncode == 2, done.stderr
        reason = json.loads(done.stdout)["reason"]
        assert "does not answer" in reason
        assert "secret" not in done.stdout + done.stderr
        assert seconds < 30
