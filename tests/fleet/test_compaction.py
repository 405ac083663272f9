"""Compactions on the fleet: from Python and from the command line, by two workers, as Flower shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from threading import Timer
from typing import cast

import pyarrow.parquet as pq
import pytest

from producer.common.errors import Refused
from producer.model.job import Operation, Request, Status
from tasks.lifecycle.outcomes import Stage
from tasks.lifecycle.rounds import begin
from tasks.testing import StreamTable
from tests.fleet.compacted import PARTITIONS, Compacted
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import inserted, left_behind, metadata_files, rows_of, snapshots_of, streamed

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

SHOWN = re.compile(r"'?(\d+)% (\d+)/(\d+) files'?")


@pytest.fixture(scope="module")
def compacted(whole_fleet: LocalFleet) -> Compacted:
    """A table of many units, compacted by the shared fleet."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        whole_fleet.attach(monkeypatch)
        return Compacted.by(whole_fleet)


class TestOneJob:
    """What many units come to."""

    def test_progress_was_seen(self, compacted: Compacted) -> None:
        seen = compacted.progress
        assert {progress.units for progress in seen if progress.status == Status.STAGING} == {PARTITIONS}
        order = [Status.QUEUED, Status.STAGING, Status.COMMITTING, Status.COMMITTED]
        places = [(order.index(progress.status), progress.done) for progress in seen]
        assert places == sorted(places)
        assert seen[-1].status == Status.COMMITTED

    def test_every_unit_ran_once_and_both_workers_took_part(self, compacted: Compacted) -> None:
        assert len(compacted.tasks) == PARTITIONS
        assert {task["worker"].partition("@")[0] for task in compacted.tasks} == {"red", "blue"}
        assert {task["state"] for task in compacted.tasks} == {"SUCCESS"}

    def test_report_is_right(self, compacted: Compacted) -> None:
        report = compacted.report
        assert (report.status, report.operation) == (Status.COMMITTED, Operation.COMPACT)
        assert (report.units, report.failed_units, report.failures) == (PARTITIONS, 0, ())
        assert report.rewritten_data_files == compacted.data_files
        assert report.added_data_files == len(compacted.table.data_files()) == PARTITIONS
        assert report.removed_delete_files == compacted.delete_files
        assert compacted.table.delete_files() == []
        assert 0 < report.added_bytes < report.removed_bytes

    def test_made_one_replace_snapshot(self, compacted: Compacted) -> None:
        table = compacted.table.table
        made = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
        assert made == [*compacted.snapshots, compacted.report.snapshot_id]
        assert snapshots_of(table, compacted.job.id) == [compacted.report.snapshot_id]
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        assert snapshot.summary.operation.value == "replace"

    def test_rows_are_the_same(self, compacted: Compacted) -> None:
        assert rows_of(compacted.table.table) == compacted.rows

    def test_nothing_is_left_behind(self, fleet: LocalFleet, compacted: Compacted) -> None:
        assert left_behind(compacted.table.table) == []
        assert fleet.records("db.compacted") == []

    def test_flower_shows_arguments_that_can_be_read(self, compacted: Compacted) -> None:
        shown = [
            re.fullmatch(r"\{'table': 'db.compacted', 'partition': '(.+?)', 'job': '(.+?)',.*\}", task["kwargs"])
            for task in compacted.tasks
        ]
        assert {found.groups() for found in shown if found} == {
            (f"part={number}", compacted.job.id) for number in range(PARTITIONS)
        }

    def test_flower_shows_progress(self, compacted: Compacted) -> None:
        seen = [
            found.groups()
            for sample in compacted.sampled
            for task in sample.values()
            if compacted.job.id in task["kwargs"] and (found := SHOWN.fullmatch(str(task["result"])))
        ]
        assert seen, compacted.sampled
        for percent, done, files in seen:
            assert int(files) == compacted.data_files // PARTITIONS
            assert int(percent) == 100 * int(done) // int(files)

    def test_flower_shows_results_as_sentences(self, fleet: LocalFleet, compacted: Compacted) -> None:
        rows = 0
        for task in compacted.tasks:
            found = re.fullmatch(
                r"'?(\d+) files became 1 with ([\d,]+) rows, .+B, [\d,]+ rows? deleted, [\d.]+ s'?", task["result"]
            )
            assert found, task["result"]
            assert int(found[1]) == compacted.data_files // PARTITIONS
            rows += int(found[2].replace(",", ""))
        assert rows == compacted.rows.num_rows
        commits = fleet.flower(f"/api/tasks?search={compacted.job.id}&taskname=icefleet.commit")
        told = f"committed: snapshot {compacted.report.snapshot_id}, "
        assert any(told in str(task["result"]) for task in commits.values()), commits

    def test_who_waits_gets_the_report_that_is_posted(self, fleet: LocalFleet, compacted: Compacted) -> None:
        """The table's history tells of a job's end before the report is posted, and knows less of it."""
        key = f"icefleet:report:{compacted.job.id}"
        posted = cast(str, fleet.redis.get(key))
        fleet.redis.delete(key)
        assert fleet.fleet.job(compacted.job.id).result().seconds != json.loads(posted)["seconds"], "of the history"
        later = Timer(0.3, lambda: fleet.redis.set(key, posted))
        later.start()
        try:
            assert fleet.fleet.job(compacted.job.id).wait(10) == compacted.report
        finally:
            later.join()

    def test_second_run_changes_nothing(self, fleet: LocalFleet, compacted: Compacted) -> None:
        before = metadata_files(compacted.table.table)
        report = fleet.fleet.compact("db.compacted").wait(60)
        assert (report.status, report.snapshot_id) == (Status.NOTHING_TO_DO, None)
        assert report.reason
        assert metadata_files(compacted.table.table) == before
        assert left_behind(compacted.table.table) == []


# -- the command line --------------------------------------------------------------------------------------------------


def test_no_wait_then_watch(fleet: LocalFleet) -> None:
    table = _small(fleet, "db.compactlater")
    before, files = rows_of(table.table), len(table.data_files())

    queued = fleet.json("compact", "db.compactlater", "--no-wait")
    assert set(queued) == {"job", "table", "status"}
    assert (queued["table"], queued["status"]) == ("db.compactlater", "queued")
    assert queued["job"].startswith("compact:default:db.compactlater:")
    report = fleet.json("watch", queued["job"])

    assert (report["status"], report["operation"], report["units"]) == ("committed", "compact", 1)
    assert (report["rewritten_data_files"], report["added_data_files"]) == (files, 2)
    assert rows_of(table.table) == before
    assert table.delete_files() == []
    assert left_behind(table.table) == []
    assert fleet.json("status", queued["job"]) == report
    (listed,) = fleet.json("jobs", "db.compactlater")
    expected = {"job": queued["job"], "table": "db.compactlater", "status": "committed", "units": 1, "done": 1}
    assert expected.items() <= listed.items()


def test_options_reach_the_workers(fleet: LocalFleet) -> None:
    """Those of the command line and of Python alike."""
    table = _small(fleet, "db.options")
    before = rows_of(table.table)
    flags = ("--tier", "full", "--sort-order", "id desc", "--where", "part = 1")
    done = fleet.json("compact", "db.options", *flags)
    assert (done["status"], done["added_data_files"]) == ("committed", 1)
    (written,) = [file for file in table.data_files() if file.path in _of_head(table)]
    assert written.partition[0] == 1
    ids = pq.read_table(written.path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
    assert ids == sorted(ids, reverse=True)
    report = fleet.fleet.compact("db.options", zorder=["id", "note"], options={"rewrite-all": True}).wait(60)
    assert (report.status, report.added_data_files) == (Status.COMMITTED, 2)
    assert rows_of(table.table) == before
    assert left_behind(table.table) == []


def test_dry_run_writes_and_sends_nothing(fleet: LocalFleet) -> None:
    table = _small(fleet, "db.dry")
    before, jobs = metadata_files(table.table), fleet.redis.zcard("icefleet:jobs")
    plan = fleet.json("compact", "db.dry", "--dry-run")
    assert [unit["files"] for unit in plan["units"]] == [len(table.data_files())]
    assert all(unit["why"] and unit["output"] for unit in plan["units"])
    assert plan["rewrite"]["strategy"] == "binpack"
    assert metadata_files(table.table) == before
    assert fleet.redis.zcard("icefleet:jobs") == jobs
    assert fleet.records("db.dry") == []
    assert left_behind(table.table) == []


def test_what_is_not_allowed_is_refused_by_name_and_at_once(fleet: LocalFleet) -> None:
    inserted(fleet.catalog, "db.warm")
    before = fleet.redis.zcard("icefleet:jobs")
    done = fleet.icefleet("compact", "db.warm", "--min-input-filez", "2")
    assert done.returncode == 2
    assert "--min-input-filez" in done.stderr
    said = fleet.json("compact", "db.warm", "--output-spec-id", "7", status=2)
    assert (said["status"], said["operation"]) == ("refused", "compact")
    assert "output-spec-id=7" in said["reason"]
    with pytest.raises(Refused, match="'min-input-filez': did you mean 'min-input-files'"):
        fleet.fleet.compact("db.warm", options={"min-input-filez": 2})
    assert fleet.redis.zcard("icefleet:jobs") == before, "nothing was enqueued"
    # An application that does not look at the table first hears of it from the job.
    told = fleet.fleet.compact("db.warm", options={"output-spec-id": 7}).wait(30)
    assert (told.status, "output-spec-id=7" in str(told.reason)) == (Status.REFUSED, True)


def test_a_corrupt_file_costs_its_unit_only(fleet: LocalFleet) -> None:
    table = streamed(fleet.catalog, "db.corrupt", partitions=2, files=4, upserts=1)
    broken = next(file.path for file in table.data_files() if file.partition[0] == 1).removeprefix("file://")
    whole = Path(broken).read_bytes()
    Path(broken).write_bytes(b"\0" * len(whole))
    try:
        nothing = fleet.fleet.compact("db.corrupt", all_or_nothing=True).wait(60)
        assert (nothing.status, nothing.snapshot_id, nothing.failed_units) == (Status.FAILED, None, 1)
        assert left_behind(table.table) == []
        report = fleet.json("compact", "db.corrupt", status=3)
    finally:
        Path(broken).write_bytes(whole)
    assert (report["status"], report["units"], report["failed_units"]) == ("partial", 2, 1)
    (failure,) = report["failures"]
    assert failure["partition"] == "part=1"
    assert broken in failure["reason"]
    partitions = [file.partition[0] for file in table.data_files()]
    assert (partitions.count(0), partitions.count(1)) == (1, 5)
    assert left_behind(table.table) == []
    assert fleet.records("db.corrupt") == []


class TestPlannedBefore:
    """A job whose messages were lost: it is planned, and nobody works on it."""

    def test_resume_sends_what_is_missing(self, fleet: LocalFleet) -> None:
        table = _small(fleet, "db.resumed")
        before, job = rows_of(table.table), self._planned(fleet, "db.resumed")
        now = fleet.fleet.job(job).progress()
        assert (now.status, now.done, now.units) == (Status.STAGING, 0, 1)
        report = fleet.json("resume", job)
        assert (report["status"], report["added_data_files"]) == ("committed", 2)
        assert snapshots_of(table.table, job) == [report["snapshot_id"]]
        assert rows_of(table.table) == before
        assert left_behind(table.table) == []

    def test_cancel_ends_it(self, fleet: LocalFleet) -> None:
        table = _small(fleet, "db.called-off")
        before, job = metadata_files(table.table), self._planned(fleet, "db.called-off")
        assert "is being cancelled" in fleet.icefleet("cancel", job).stdout
        report = fleet.json("watch", job, status=1)
        assert (report["status"], report["snapshot_id"]) == ("cancelled", None)
        assert metadata_files(table.table) == before
        assert left_behind(table.table) == []
        assert fleet.records("db.called-off") == []

    def _planned(self, fleet: LocalFleet, table: str) -> str:
        request = Request.new(table, operation=Operation.COMPACT)
        assert isinstance(begin(request, fleet.settings), Stage)
        return request.job


def _small(fleet: LocalFleet, name: str, format_version: int = 2) -> StreamTable:
    return streamed(fleet.catalog, name, partitions=2, rows=400, files=4, upserts=1, format_version=format_version)


def _of_head(table: StreamTable) -> set[str]:
    """Paths of the data files that the latest snapshot added."""
    head = table.table.current_snapshot()
    assert head is not None
    return {file.path for file in table.data_files() if file.file_sequence_number == head.sequence_number}
