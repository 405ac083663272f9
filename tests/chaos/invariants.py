"""What must hold whatever has happened, judged by readers that share nothing with the product."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import ParamSpec

import pyarrow as pa
from pyiceberg.table import Table

from producer import Report
from producer.model.job import Status
from producer.state.commit_history import JOB, ROUND
from tests.fleet.tables import left_behind, rows_of
from tests.fleet.writers import judge
from tests.support import oracle
from tests.support.commits import recount, totals
from tests.support.unreferenced import referenced

P = ParamSpec("P")


class Invariant(StrEnum):
    """What is promised."""

    ROWS = "rows are those of the writers' commits alone"
    ENDS = "every job ends, as it should and with a reason"
    ONCE = "a round of a job is one snapshot at most"
    CLEAN = "no file of a job is left behind, and none is missing"
    TOTALS = "totals in the summary equal a recount"


#: How often each was looked at and held.
HELD: Counter[Invariant] = Counter()


class Violated(AssertionError):
    """Something that must never happen has happened."""

    def __init__(self, what: str, invariant: Invariant = Invariant.ENDS) -> None:
        super().__init__(what)
        self.invariant = invariant


def _of(invariant: Invariant) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Count what held, and name what did not."""

    def counted(check: Callable[P, None]) -> Callable[P, None]:
        @wraps(check)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            try:
                check(*args, **kwargs)
            except AssertionError as error:
                raise Violated(str(error) or "it does not hold", invariant) from error
            HELD[invariant] += 1

        return checked

    return counted


@_of(Invariant.ROWS)
def rows_are(table: Table, expected: pa.Table) -> None:
    """The rows are those that the writers' commits alone would give, as iceberg-rust reads them."""
    found = rows_of(table)
    assert found == expected, f"{found.num_rows} rows where {expected.num_rows} must be, or others of as many"


@_of(Invariant.ROWS)
def rows_by_hand_are(table: Table, expected: Counter[oracle.Row], branch: str = "main") -> None:
    """The same of small tables, as the specification says it, row by row."""
    found = oracle.rows(table, branch)
    assert found == expected, f"missing: {expected - found}, too many: {found - expected}"


@_of(Invariant.ROWS)
def no_snapshot_changed_rows(table: Table) -> None:
    """Every snapshot that a job made left the rows as they were, and those of version 3 their ids."""
    judge(table)


@_of(Invariant.ENDS)
def ends_with_a_reason(report: Report) -> None:
    """The job has ended, and unless it did all that it was asked for somebody can read why."""
    assert report.status.ended, f"{report.job} is still {report.status}"
    assert report.status is Status.COMMITTED or report.reason, f"{report.job} is {report.status}, and does not say why"
    for failure in report.failures:
        assert failure.reason, f"unit {failure.unit} of {report.job} failed, and does not say why"


@_of(Invariant.ONCE)
def committed_once(table: Table) -> None:
    """Each round of a job made one snapshot at most."""
    made = [s.summary for s in table.metadata.snapshots if s.summary is not None and s.summary[JOB]]
    rounds = Counter((summary[JOB], summary[ROUND]) for summary in made)
    twice = [name for name, times in rounds.items() if times > 1]
    assert not twice, f"more than one snapshot of {twice}"


@_of(Invariant.CLEAN)
def nothing_is_left(table: Table, records: list[str], before: frozenset[str] = frozenset()) -> None:
    """No file is there that no snapshot refers to, and none is missing that one does.

    Args:
        records: What is there of jobs.
        before: Files that were left by others, relative to the table's location.
    """
    left = set(left_behind(table)) - before
    assert not left, f"left behind: {sorted(left)}"
    assert not records, f"records of ended jobs: {records}"
    missing = sorted(path for path in referenced(table) if not Path(path).exists())
    assert not missing, f"missing: {missing}"


@_of(Invariant.CLEAN)
def no_object_is_left(table: Table, keys: set[str], uploads: list[str]) -> None:
    """An object store has every file that a snapshot refers to, and nothing else of a table: no markers of folders.

    Args:
        keys: All that there are below the table's location, each after its bucket.
        uploads: Keys of uploads that were begun and not ended.
    """
    known = set(referenced(table))
    left = {key for key in keys - known if not key.endswith(".metadata.json")}
    assert not left, f"left behind: {sorted(left)}"
    assert not uploads, f"uploads that were not ended: {uploads}"
    missing = known - keys
    assert not missing, f"missing: {sorted(missing)}"


@_of(Invariant.CLEAN)
def nothing_came(folder: Path, before: frozenset[str]) -> None:
    """To the folder of a table that is gone nothing came, but for metadata that its catalog has written."""
    now = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".json"}
    assert now <= before, f"left behind: {sorted(now - before)}"


@_of(Invariant.TOTALS)
def totals_are_right(table: Table) -> None:
    """The summary of the head says what a recount of its files says."""
    head = table.metadata.current_snapshot()
    if head is not None:
        said, counted = totals(head), recount(table)
        assert said.items() <= counted.items(), f"the summary says {said}, and there are {counted}"
