"""Secrets in the texts of errors that end a unit or a job: neither its records nor its report hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from producer.common import redaction as masking
from producer.common.redaction import register_secrets
from producer.model.job import Status
from producer.state.job_store import ROOT
from tasks.lifecycle.outcomes import Stage
from tasks.testing import StreamTable
from tests.support.faulty import Jobs

SECRET = "opensesame"


@pytest.fixture(autouse=True)
def learned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process has learned is forgotten after each test."""
    monkeypatch.setattr(masking, "_registered", set())
    register_secrets({"s3.session-token": SECRET})


def _records(stream: StreamTable) -> list[str]:
    folder = Path(stream.table.location().removeprefix("file://")) / ROOT
    return [path.read_text() for path in folder.rglob("*") if path.is_file()]


def test_a_unit_that_fails(stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(f"403 for {SECRET}")

    monkeypatch.setattr("tasks.operations.convert.execute.convert", fail)
    jobs.settings = jobs.settings.model_copy(update={"max_attempts": 1})
    step = jobs.start(jobs.request())
    assert isinstance(step, Stage)
    output = [text for text in _records(stream) if "403 for" in text]
    assert output
    assert all("403 for ***" in text for text in output)
    assert not any(SECRET in text for text in _records(stream))
    report = jobs.end(step)
    assert report.status is Status.FAILED
    assert "403 for ***" in str(report.reason)
    assert SECRET not in report.model_dump_json()
