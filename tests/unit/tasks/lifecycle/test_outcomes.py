"""Reports in one line."""

from __future__ import annotations

import time

from producer.model.job import Operation, Report, Request, Status
from tasks.lifecycle.outcomes import describe_report, report_of


def test_a_compaction() -> None:
    report = Report(
        job="j",
        table="db.t",
        operation=Operation.COMPACT,
        status=Status.COMMITTED,
        snapshot_id=7,
        rewritten_data_files=12,
        added_data_files=2,
        removed_delete_files=3,
        removed_bytes=4000,
        added_bytes=3000,
        seconds=1.5,
    )
    assert describe_report(report) == (
        "committed: snapshot 7, 12 data files became 2, 3.9 KB became 2.9 KB, 3 delete files removed in 1.5 s"
    )


def test_a_conversion() -> None:
    report = Report(
        job="j",
        table="db.t",
        status=Status.COMMITTED,
        snapshot_id=7,
        removed_equality_delete_files=2,
        added_dvs=3,
        added_position_deletes=4,
        seconds=1.5,
    )
    assert describe_report(report) == (
        "committed: snapshot 7, 2 equality delete files became 3 deletion vectors with 4 positions in 1.5 s"
    )


def test_a_reason_says_more() -> None:
    assert describe_report(Report(job="j", table="db.t", status=Status.FAILED, reason="it went")) == "failed: it went"


def test_a_job_that_is_submitted_by_a_clock_ahead() -> None:
    request = Request.new("db.t").model_copy(update={"submitted": time.time() + 600})
    assert report_of(request, Status.COMMITTED).seconds == 0
