"""Jobs that an earlier version has begun are finished by this one: saved records, at each moment of a job.

`tests/fleet/test_messages.py` has saved messages run by a worker.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent

from producer.common.settings import Settings
from producer.model.job import Operation, Report, Status
from producer.state.commit_history import snapshots_of
from tasks.job.context import JobContext
from tasks.lifecycle.ending import find_request
from tasks.lifecycle.outcomes import Ended, Stage, Step
from tasks.lifecycle.rounds import advance, begin
from tasks.lifecycle.stage import stage
from tests.support import oracle
from tests.support.repository import REPOSITORY
from tests.support.saved_jobs import MOMENTS, ROWS, SAVED_AT, SavedJob, save
from tests.support.saved_messages import arguments_of, read_messages
from tests.support.unreferenced import unreferenced

RECORDS = REPOSITORY / "tests" / "records"
SAVED = sorted(RECORDS.glob("*/*/*.json"))
LAST = max(RECORDS.glob("*.*"), key=lambda folder: tuple(map(int, folder.name.split("."))))
#: How many snapshots a job has made at its end: those of which a part was planned again have made one before.
SNAPSHOTS = {"cancelled": 0, "planned-again": 2}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an hour after the jobs were saved: nobody works on them any more."""
    real, started = time.time, time.time()
    monkeypatch.setattr(time, "time", lambda: SAVED_AT + 3600 + real() - started)


def finish(job: SavedJob, settings: Settings) -> Report:
    """Take the job on from where it is to its end, as the tasks do."""
    context = JobContext.open(job.job)
    step: Step = begin(find_request(context), settings)
    for _ in range(20):
        if isinstance(step, Ended):
            assert step.report is not None
            assert step.store is not None
            step.store.forget()
            return step.report
        if isinstance(step, Stage):
            for unit in step.units:
                stage(JobContext.open(job.job, step.plan.location), step.plan, unit, settings, lambda done, of: None)
        step = advance(JobContext.open(job.job, context.store.location), settings)
    raise AssertionError(f"the job does not end: {step}")


@pytest.mark.parametrize(
    "path", SAVED, ids=["-".join(path.relative_to(RECORDS).with_suffix("").parts) for path in SAVED]
)
def test_a_job_of_an_earlier_version(clock: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """It ends with the right rows and one snapshot, and nothing of it is left behind."""
    job = SavedJob.read(path)
    catalog = job.restore(path.parent.with_suffix(".tar.xz"), tmp_path)
    monkeypatch.setattr("producer.iceberg.catalog.load_catalog", lambda name: catalog)
    before = oracle.rows(catalog.load_table(job.table))
    assert before == ROWS or path.stem == "planned-again"

    report = finish(job, Settings(broker_url="", board_url="", unit_mb=1))

    table = catalog.load_table(job.table)
    assert oracle.rows(table) == before
    assert [path for path in unreferenced(table, metadata_files=False) if Path(path).is_file()] == []
    live = oracle.live_files(table)
    equality = [file for file in live if file.content == DataFileContent.EQUALITY_DELETES]
    assert len(snapshots_of(table.metadata, job.job)) == SNAPSHOTS.get(path.stem, 1)
    if path.stem == "cancelled":
        assert report.status is Status.CANCELLED
        assert len(equality) >= 2
        return
    assert report.status is Status.COMMITTED, report
    assert (equality, report.failures) == ([], ())
    if report.operation is Operation.COMPACT:
        assert [file for file in live if file.content != DataFileContent.DATA] == []


@pytest.fixture(scope="module")
def saved_now(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same jobs, saved by this version."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder)
    return folder


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("job", ["convert-v2", "convert-v3", "compact-v2", "compact-v3"])
def test_records_are_those_of_the_last_version(saved_now: Path, job: str, moment: str) -> None:
    """They have the same names and fields, so that both versions can work side by side on one job.

    Where this fails on purpose, save jobs of this version too: `python -m tests.support.saved_jobs
    tests/records/VERSION`.
    """
    before, now = (SavedJob.read(folder / job / f"{moment}.json") for folder in (LAST, saved_now))
    expected, shape = shape_of(before), shape_of(now)
    if moment == "concluded":  # `closing` is written beside the conclusion, and was after it
        shape = {name: fields for name, fields in shape.items() if not name.endswith("/closing.json")}
    assert shape == expected


@pytest.mark.parametrize("job", ["convert-v2", "convert-v3", "compact-v2", "compact-v3"])
def test_messages_are_those_of_the_last_version(saved_now: Path, job: str) -> None:
    """They have the same arguments and headers: workers of both versions run them."""
    before, now = (read_messages(folder / f"{job}.messages.json") for folder in (LAST, saved_now))
    assert {name: message_shape(sent) for name, sent in now.items()} == {
        name: message_shape(sent) for name, sent in before.items()
    }


def shape_of(job: SavedJob) -> dict[str, Any]:
    """The names of a job's records and of their fields, without what is random in them."""
    return {
        re.sub(r"[0-9a-f]{16}|(?<=[/-])[0-9a-f]{8}(?=[/.-]|$)|\d{8}T\d{6}", "*", name): fields_of(json.loads(text))
        for name, text in sorted(job.records.items())
        if text.startswith("{")
    }


def message_shape(sent: dict[str, Any]) -> Any:
    """Return a message's queue, its task, and the names and types of its arguments and headers."""
    message = sent["message"]
    headers = message["headers"]
    own = {name: fields_of(value) for name, value in headers.items() if name.startswith("icefleet")}
    arguments = fields_of(arguments_of(message))
    formats = (message["content-type"], message["content-encoding"])
    return sent["queue"], headers["task"], formats, arguments, own, sorted(headers)


def fields_of(value: Any) -> Any:
    """A record's structure: the type of each value, by the name of its field."""
    if isinstance(value, dict):
        return {re.sub(r"^(\d+|.*/.*|[0-9a-f-]{36})$", "*", name): fields_of(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(fields_of(each)) for each in value})
    return type(value).__name__
