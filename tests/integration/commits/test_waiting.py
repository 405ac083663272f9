"""A job in one process that waits for another process."""

from __future__ import annotations

import time

import pytest

from producer.common.errors import Failed
from tasks.lifecycle.outcomes import Stage, Waiting
from tasks.lifecycle.rounds import begin
from tasks.local import LocalEngine
from tests.support.commits import Create, fill
from tests.support.faulty import Jobs


def test_nothing_is_waited_for_without_end(create: Create, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The units of a round that another process has begun never end."""
    stream = create()
    fill(stream)
    request = jobs.request()
    step = begin(request, jobs.settings)
    assert isinstance(step, Stage)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        assert len(pauses) < 100, "it waits for ever"
        jobs.wait(600)

    monkeypatch.setattr(time, "sleep", pause)
    monkeypatch.setattr("tasks.local.begin", lambda *_: Waiting(step.plan))
    settings = jobs.settings.model_copy(update={"give_up_hours": 2})
    with pytest.raises(Failed, match=r"2 hours.*resume or cancel"):
        LocalEngine(settings).run(request)
    assert len(pauses) == 12
    assert jobs.context(request).store.latest_plan() is not None, "it can be resumed"
