"""What judges a broken fleet sees what it is there to see: each invariant, violated on purpose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from producer import Report
from producer.model.job import Status
from producer.state.commit_history import JOB, ROUND
from tasks.testing import RowDelta, StreamTable, local_catalog
from tests.chaos import invariants
from tests.chaos.invariants import HELD, Invariant, Violated
from tests.fleet.tables import rows_of, streamed
from tests.support.unreferenced import referenced

ROUND_0 = {JOB: "a-job", ROUND: "0"}


@pytest.fixture
def stream(tmp_path: Path) -> StreamTable:
    return streamed(local_catalog(tmp_path), "db.t", partitions=2, rows=50, upserts=1)


def _path(location: str) -> Path:
    return Path(location.removeprefix("file://"))


def _violates(invariant: Invariant, check: Callable[[], None]) -> str:
    with pytest.raises(Violated) as violated:
        check()
    assert violated.value.invariant is invariant
    return str(violated.value)


def test_a_whole_table(stream: StreamTable) -> None:
    before, table = HELD.copy(), stream.table
    invariants.rows_are(table, rows_of(table))
    invariants.no_snapshot_changed_rows(table)
    invariants.committed_once(table)
    invariants.nothing_is_left(table, [])
    invariants.totals_are_right(table)
    assert HELD - before == Counter(
        {Invariant.ROWS: 2, Invariant.ONCE: 1, Invariant.CLEAN: 1, Invariant.TOTALS: 1},
    )


def test_rows_that_came_back(stream: StreamTable) -> None:
    rows = rows_of(stream.table)
    stream.remove_files([stream.delete_files()[0].path])
    _violates(Invariant.ROWS, lambda: invariants.rows_are(stream.table, rows))


def test_a_snapshot_of_a_job_that_changed_rows(stream: StreamTable) -> None:
    lost = stream.data_files()[0]
    stream.commit(RowDelta((), [lost]), operation=Operation.REPLACE, properties=ROUND_0)
    _violates(Invariant.ROWS, lambda: invariants.no_snapshot_changed_rows(stream.table))


def test_a_round_that_was_committed_twice(stream: StreamTable) -> None:
    for _ in range(2):
        stream.commit(RowDelta((), [stream.data_files()[0]]), properties=ROUND_0)
    assert "a-job" in _violates(Invariant.ONCE, lambda: invariants.committed_once(stream.table))


@pytest.mark.parametrize("place", ["data/stray.parquet", "metadata/stray-m0.avro", "_icefleet/token/plan-0.json"])
def test_a_file_that_was_left(stream: StreamTable, place: str) -> None:
    stray = _path(stream.table.location()) / place
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.touch()
    assert place in _violates(Invariant.CLEAN, lambda: invariants.nothing_is_left(stream.table, []))
    invariants.nothing_is_left(stream.table, [], frozenset({place}))


def test_a_file_that_is_missing(stream: StreamTable) -> None:
    _path(stream.data_files()[0].path).unlink()
    assert "missing" in _violates(Invariant.CLEAN, lambda: invariants.nothing_is_left(stream.table, []))


@pytest.mark.parametrize(
    ("more", "fewer", "uploads"), [(["lake/t/data/"], 0, []), ([], 1, []), ([], 0, ["lake/t/data/a.parquet"])]
)
def test_what_an_object_store_must_not_have(
    stream: StreamTable, more: list[str], fewer: int, uploads: list[str]
) -> None:
    keys = sorted(set(referenced(stream.table)))
    invariants.no_object_is_left(stream.table, {*keys, "lake/t/metadata/00001-a.metadata.json"}, [])
    _violates(Invariant.CLEAN, lambda: invariants.no_object_is_left(stream.table, {*keys[fewer:], *more}, uploads))


def test_something_that_came_to_a_table_that_was_dropped(stream: StreamTable) -> None:
    folder = _path(stream.table.location())
    before = frozenset(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    invariants.nothing_came(folder, before)
    (folder / "data" / "late.parquet").touch()
    assert "late" in _violates(Invariant.CLEAN, lambda: invariants.nothing_came(folder, before))


def test_totals_that_are_wrong(stream: StreamTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table: Table = stream.table
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    monkeypatch.setitem(head.summary._additional_properties, "total-records", "7")
    _violates(Invariant.TOTALS, lambda: invariants.totals_are_right(table))


@pytest.mark.parametrize(
    ("status", "reason"), [(Status.STAGING, "it goes on"), (Status.FAILED, None), (Status.NOTHING_TO_DO, "")]
)
def test_a_job_that_does_not_end_or_does_not_say_why(status: Status, reason: str | None) -> None:
    report = Report(job="a-job", table="db.t", status=status, reason=reason)
    _violates(Invariant.ENDS, lambda: invariants.ends_with_a_reason(report))
