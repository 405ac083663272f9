"""How tasks look in Flower whose job or unit did not end well: found by their state, counted, and with a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from producer import Job
from producer.broker.queue import Messenger
from producer.common.sizes import count_text
from producer.model.job import Status
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import left_behind, streamed, stuck

pytestmark = [pytest.mark.fleet, pytest.mark.redis, pytest.mark.spark]

METRIC = re.compile(r'flower_events_total\{task="(?P<task>[\w.]+)",type="task-failed",worker="[^"]+"\} (?P<count>\S+)')


def _shown(fleet: LocalFleet, id_: str, *states: str) -> dict[str, Any]:
    """What Flower shows of a task when it has come to one of these states."""

    def found() -> dict[str, Any] | None:
        try:
            told: dict[str, Any] = fleet.flower(f"/api/task/info/{id_}")
        except HTTPError:  # not known to Flower yet
            return None
        return told if told["state"] in states else None

    return fleet.processes.wait_for(f"{', '.join(states)} of {id_}", found, 30)


def _failures(fleet: LocalFleet) -> dict[str, float]:
    """How many failed tasks of each kind Flower has counted."""
    with urlopen(Request(f"http://127.0.0.1:{fleet.flower_port}/metrics"), timeout=10) as answer:
        counted = METRIC.finditer(answer.read().decode())
    totals: dict[str, float] = {}
    for metric in counted:
        totals[metric["task"]] = totals.get(metric["task"], 0.0) + float(metric["count"])
    return totals


def _more(fleet: LocalFleet, before: dict[str, float]) -> dict[str, float]:
    """How many more it has counted since."""
    more = {task: count - before.get(task, 0) for task, count in _failures(fleet).items()}
    return {task: count for task, count in more.items() if count}


def _is_failure(told: dict[str, Any], sentence: str) -> None:
    assert (told["state"], told["result"], told["exception"]) == ("FAILURE", sentence, sentence)


def _over(fleet: LocalFleet) -> None:
    """Every message is acknowledged, and none comes again."""
    fleet.settle()
    fleet.processes.wait_for("acknowledgements", lambda: fleet.redis.hlen("unacked") == 0, 10)


@pytest.fixture
def quiet(fleet: LocalFleet) -> Iterator[None]:
    """Nothing that was to be expected is told with a traceback."""
    logs = [fleet.processes.log(name) for name in ("red", "blue", "committer")]
    before = [log.stat().st_size for log in logs]
    yield
    for log, size in zip(logs, before, strict=True):
        with log.open("rb") as stream:
            stream.seek(size)
            assert "Traceback" not in stream.read().decode()


@pytest.mark.usefixtures("quiet")
def test_a_job_that_is_refused(fleet: LocalFleet) -> None:
    before = _failures(fleet)
    job = fleet.fleet.convert("db.absent")
    report = job.wait(30)
    assert report.status is Status.REFUSED
    told = _shown(fleet, f"plan:{job.id}", "FAILURE", "SUCCESS")
    _is_failure(told, f"refused: {report.reason}")
    assert f"plan:{job.id}" in fleet.flower("/api/tasks?search=state:FAILURE")
    _over(fleet)
    assert _more(fleet, before) == {"icefleet.plan": 1}


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("partitions", "status"), [(1, "failed"), (2, "partial")])
def test_a_job_with_a_unit_that_fails(fleet: LocalFleet, partitions: int, status: str) -> None:
    before = _failures(fleet)
    table = streamed(fleet.catalog, f"db.ends-{status}", partitions=partitions, upserts=1)
    deletes = [file for file in table.delete_files() if file.partition[0] == 0]
    Path(deletes[0].path.removeprefix("file://")).write_bytes(b"this is no Parquet file, and long enough for one")
    job = fleet.fleet.convert(table.identifier)
    report = job.wait(60)
    assert report.status == status
    unit = _shown(fleet, f"convert:{job.id}:0:{report.failures[0].unit}", "FAILURE", "SUCCESS")
    _is_failure(unit, f"failed: {report.failures[0].reason}")
    _is_failure(_shown(fleet, f"commit:{job.id}", "FAILURE", "SUCCESS"), f"{status}: {report.reason}")
    assert _shown(fleet, f"plan:{job.id}", "SUCCESS")["result"] == f"'{count_text(partitions, 'unit')} to stage'"
    Messenger(fleet.settings).commit(job.id, table.table.metadata.location)  # comes late, and changes nothing
    _over(fleet)
    assert _more(fleet, before) == {"icefleet.convert": 1, "icefleet.commit": 1}
    assert _shown(fleet, f"commit:{job.id}", "FAILURE", "SUCCESS", "REVOKED")["state"] == "FAILURE"
    assert left_behind(table.table) == []


def test_a_job_that_is_cancelled(fleet: LocalFleet) -> None:
    before = _failures(fleet)
    table = streamed(fleet.catalog, "db.ends-cancelled", partitions=1, upserts=1)
    with stuck(table):
        job = fleet.fleet.convert(table.identifier)
        _, child = fleet.child_at(job.id, 0)
        job.cancel()
        report = job.wait(60)
    assert report.status is Status.CANCELLED
    fleet.kill_child(child)  # it reads for ever
    commit = _shown(fleet, f"commit:{job.id}", "REVOKED", "FAILURE", "SUCCESS")
    assert (commit["state"], commit["result"]) == ("REVOKED", f"cancelled: {report.reason}")
    unit = _shown(fleet, f"convert:{job.id}:0:0", "REVOKED", "FAILURE", "SUCCESS")
    assert (unit["state"], unit["result"]) == ("REVOKED", "cancelled: nothing of this unit is committed")
    _over(fleet)
    assert _more(fleet, before) == {}


def test_what_waits_and_what_is_tried_again(fleet: LocalFleet) -> None:
    """Neither is shown as a success before it is one."""
    table = streamed(fleet.catalog, "db.ends-later", partitions=1, upserts=1)
    with stuck(table):
        first = fleet.fleet.convert(table.identifier)
        _, child = fleet.child_at(first.id, 0)
        second = fleet.fleet.compact(table.identifier, tier="full")
        waiting = _shown(fleet, f"plan:{second.id}", "WAITING", "SUCCESS")
        assert (waiting["state"], waiting["result"]) == ("WAITING", "waits: another job works on the table")
        Messenger(fleet.settings).stage(fleet.planned(first.id), [0])
        again = _shown(fleet, f"convert:{first.id}:0:0", "RETRY", "SUCCESS")
        assert (again["state"], "is working on it" in again["exception"]) == ("RETRY", True)
    fleet.kill_child(child)  # it reads for ever
    for job in (first, second):
        assert job.wait(60).status is Status.COMMITTED
        _ends_well(fleet, job)
    _over(fleet)


def _ends_well(fleet: LocalFleet, job: Job) -> None:
    for id_ in (f"plan:{job.id}", f"{job.name.operation}:{job.id}:0:0", f"commit:{job.id}"):
        assert _shown(fleet, id_, "SUCCESS")["state"] == "SUCCESS"
