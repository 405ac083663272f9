"""What must hold whatever has happened, judged by readers that share nothing with the product."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from producer import Report
from producer.history import JOB, ROUND
from producer.messages import Status
from tests.fleet.tables import left_behind, referenced, rows_of
from tests.support.commits import recount, totals


class Violated(AssertionError):
    """Something that must never happen has happened."""


def rows_are(table: Table, expected: pa.Table) -> None:
    """The rows are those that the writers' commits alone would give."""
    found = rows_of(table)
    if found != expected:
        raise Violated(f"{found.num_rows} rows where {expected.num_rows} must be, or others of as many")


def ends_with_a_reason(report: Report) -> None:
    """The job has ended, and unless it did all that it was asked for somebody can read why."""
    if not report.status.ended:
        raise Violated(f"{report.job} is still {report.status}")
    if report.status is not Status.COMMITTED and not report.reason:
        raise Violated(f"{report.job} ended as {report.status}, and does not say why")
    for failure in report.failures:
        if not failure.reason:
            raise Violated(f"unit {failure.unit} of {report.job} failed, and does not say why")


def committed_once(table: Table) -> None:
    """Each round of a job made one snapshot at most."""
    made = [s.summary for s in table.metadata.snapshots if s.summary is not None and s.summary[JOB]]
    rounds = Counter((summary[JOB], summary[ROUND]) for summary in made)
    if twice := [name for name, times in rounds.items() if times > 1]:
        raise Violated(f"more than one snapshot of {twice}")


def nothing_is_left(table: Table, records: list[str]) -> None:
    """No file is there that no snapshot refers to, and none is missing that one does."""
    if left := left_behind(table):
        raise Violated(f"left behind: {left}")
    if records:
        raise Violated(f"records of ended jobs: {records}")
    if missing := sorted(path for path in referenced(table) if not Path(path).exists()):
        raise Violated(f"missing: {missing}")


def totals_are_right(table: Table) -> None:
    """The summary of the head says what a recount of its files says."""
    head = table.metadata.current_snapshot()
    if head is not None and not totals(head).items() <= (counted := recount(table)).items():
        raise Violated(f"the summary says {totals(head)}, and there are {counted}")
