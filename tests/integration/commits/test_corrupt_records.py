"""Records that nobody can read: each job ends, says which one it was, and deletes nothing that the table refers to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from producer.broker.queue import COMMIT, STAGING
from producer.model.job import Operation, Request, Status
from producer.state.job_store import JobStore
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, Create, equality, fill, rows
from tests.support.dispatch import Dispatch
from tests.support.faulty import FaultyCatalog, Jobs, unanswered_before
from tests.support.unreferenced import unreferenced

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda record: b"",
    "cut off": lambda record: record[: len(record) // 2],
    "no text": lambda record: b"\xff\xfe\x00" + record,
    "no JSON": lambda record: b"<html>503</html>",
    "no object": lambda record: b"[1, 2]",
    "deep": lambda record: b"[" * 100_000,
    "another type": lambda record: json.dumps({key: [] for key in json.loads(record)}).encode(),
    "unknown field": lambda record: json.dumps({**json.loads(record), "colour": "red"}).encode(),
    "field missing": lambda record: json.dumps({"schema": 1}).encode(),
    "odd version": lambda record: json.dumps({**json.loads(record), "schema": "new"}).encode(),
}


@pytest.fixture
def fleet(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> Dispatch:
    return Dispatch(monkeypatch)


@pytest.fixture
def table(create: Create) -> StreamTable:
    stream = create(2)
    fill(stream)
    return stream


def records(stream: StreamTable, name: str) -> list[Path]:
    """The records of that name, whatever their numbers."""
    folder = Path(stream.table.location().removeprefix("file://")) / "_icefleet"
    return sorted(path for path in folder.rglob("*.json") if path.name.startswith(name))


def damage_once(
    fleet: Dispatch, stream: StreamTable, at: str, name: str, damage: Callable[[bytes], bytes]
) -> list[str]:
    """Damage each record of that name ahead of the first task of a kind that finds one; the list of those."""
    hit: list[str] = []

    def before(task: str, arguments: dict[str, Any]) -> None:
        if task == at and not hit:
            for path in records(stream, name):
                path.write_bytes(damage(path.read_bytes()))
                hit.append(path.name)

    fleet.before = before
    return hit


def files_left(stream: StreamTable) -> set[str]:
    """What nothing refers to, but for the report that stays where there is no Redis."""
    return {path for path in unreferenced(stream.table) if "_icefleet" not in path}


#: Which record is damaged, ahead of what, and whether the job may fail for it: else it must come to a good end.
CASES = [
    ("plan-", STAGING[Operation.CONVERT], True),
    ("plan-", COMMIT, True),
    ("planner-", STAGING[Operation.CONVERT], False),
    ("planner-", COMMIT, False),
    ("unit-", STAGING[Operation.CONVERT], True),
    ("unit-", COMMIT, False),
    ("attempt-", COMMIT, False),
    ("staged-", COMMIT, False),
    ("current-", STAGING[Operation.CONVERT], False),
    ("current-", COMMIT, False),
]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("name", "at", "fails"), CASES, ids=[f"{name}{at}" for name, at, _ in CASES])
def test_every_record(table: StreamTable, fleet: Dispatch, name: str, at: str, fails: bool, damage: str) -> None:
    hit = damage_once(fleet, table, at, name, DAMAGE[damage])
    request = Request.new("db.t")
    report = fleet.run(table, request)
    assert hit, "nothing was damaged"
    assert oracle.rows(table.table) == ROWS
    if fails:
        assert report.status is Status.FAILED
        assert hit[0] in str(report.reason), report
        assert len(equality(table)) == 2
    else:
        assert report.status is Status.COMMITTED, report
        assert equality(table) == []
    if files_left(table):
        assert any(record in str(report.reason) for record in hit), report
    assert [path.name for path in records(table, "")] == ["last-convert.json"]
    again = fleet.run(table, Request.new("db.t"))
    assert again.status is (Status.COMMITTED if fails else Status.NOTHING_TO_DO)


@pytest.mark.parametrize("damage", DAMAGE)
def test_why_a_unit_failed(table: StreamTable, jobs: Jobs, fleet: Dispatch, damage: str) -> None:
    """The unit is tried once more, and fails for the same reason."""
    jobs.broken.add(0)
    hit = damage_once(fleet, table, COMMIT, "failed-", DAMAGE[damage])
    report = fleet.run(table, Request.new("db.t"))
    assert hit
    assert report.status is Status.FAILED
    assert files_left(table) == set()


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_conclusion(table: StreamTable, fleet: Dispatch, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever cleans up dies when half of the records are gone, and nobody can read how the job ended."""
    clear = JobStore.clear

    def dies(store: JobStore) -> None:
        monkeypatch.setattr(JobStore, "clear", clear)
        [staged, *_] = records(table, "staged-")
        staged.unlink()
        [conclusion] = records(table, "conclusion")
        conclusion.write_bytes(DAMAGE[damage](conclusion.read_bytes()))
        raise OSError("the machine is gone")

    monkeypatch.setattr(JobStore, "clear", dies)
    report = fleet.run(table, Request.new("db.t"))
    assert report.status is Status.PARTIAL
    assert "conclusion.json" in str(report.reason)
    assert report.snapshot_id == table.table.metadata.current_snapshot_id
    assert equality(table) == []
    assert oracle.rows(table.table) == ROWS
    assert files_left(table) == set()


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_note_of_a_commit(table: StreamTable, catalog: FaultyCatalog, fleet: Dispatch, damage: str) -> None:
    """A commit without an answer may still happen: what is staged is not deleted by who cannot read of it."""
    catalog.faults.extend([unanswered_before] * fleet.settings.commit_attempts)
    done: list[str] = []
    request = Request.new("db.t")

    def cancel(task: str, arguments: dict[str, Any]) -> None:
        if task == COMMIT and records(table, "commit-") and not done:
            for path in records(table, "commit-"):
                path.write_bytes(DAMAGE[damage](path.read_bytes()))
                done.append(path.name)
            JobStore(table.table.io, table.table.location(), request.token).cancel()

    fleet.before = cancel
    report = fleet.run(table, request)
    assert done
    assert oracle.rows(table.table) == ROWS
    assert report.status is Status.CANCELLED
    assert done[0] in str(report.reason)
    assert len(records(table, "")) == 1
    assert any("-deletes" in path for path in files_left(table)), "what is staged, not the commit's manifests alone"


def test_a_record_of_a_later_version_waits_for_somebody_newer(table: StreamTable, fleet: Dispatch) -> None:
    """It is neither corrupt nor lost: the message comes again until a worker of that version is there."""
    kept: dict[Path, bytes] = {}

    def newer(record: bytes) -> bytes:
        return json.dumps({**json.loads(record), "schema": 2, "colour": "red"}).encode()

    def before(task: str, arguments: dict[str, Any]) -> None:
        if task == COMMIT and not kept:
            for path in records(table, "staged-"):
                kept[path] = path.read_bytes()
                path.write_bytes(newer(kept[path]))

    fleet.before = before
    with pytest.raises(AssertionError, match="does not end"):
        fleet.run(table, Request.new("db.t"))
    waits = [said for name, said in fleet.done if name == COMMIT]
    assert len(waits) > 10
    assert all("asks for schema 2 and this process knows 1: upgrade it" in said for said in waits)
    for path, record in kept.items():
        path.write_bytes(record)
    while fleet.queue:
        fleet.step()
    assert fleet.done[-1][1].startswith("committed")
    assert equality(table) == []


def test_what_cannot_be_committed_for_the_same_reason_each_time_fails(table: StreamTable, fleet: Dispatch) -> None:
    """A staged record of the right types that names a partition which is not there."""

    def astray(record: bytes) -> bytes:
        content = json.loads(record)
        return json.dumps({**content, "deletes": [{**file, "scope": 99} for file in content["deletes"]]}).encode()

    damage_once(fleet, table, COMMIT, "staged-", astray)
    report = fleet.run(table, Request.new("db.t"))
    assert report.status is Status.FAILED
    assert "The commit failed: IndexError" in str(report.reason)
    assert len([said for name, said in fleet.done if name == COMMIT and said.startswith("RETRY")]) == 2
    assert oracle.rows(table.table) == ROWS
    assert files_left(table) == set()


def test_a_manifest_that_cannot_be_read_at_the_end_keeps_the_files(table: StreamTable, fleet: Dispatch) -> None:
    """Nobody can tell what it refers to."""
    request = Request.new("db.t", all_or_nothing=True)

    def before(task: str, arguments: dict[str, Any]) -> None:
        if task == COMMIT:
            table.append(rows(9))
            snapshot = table.table.current_snapshot()
            assert snapshot is not None
            Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(b"Obj\x01")
            fleet.before = lambda task, arguments: None

    fleet.before = before
    report = fleet.run(table, request)
    assert report.status is Status.FAILED
    assert "cannot be read" in str(report.reason)
    assert "orphan" in str(report.reason)
    folder = Path(table.table.location().removeprefix("file://"))
    assert list(folder.rglob(f"{request.token}*-deletes.parquet"))
