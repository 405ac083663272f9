"""Two deliveries of one unit that claim one attempt: storage has no atomic claim, and tells both that it is theirs."""

from __future__ import annotations

from typing import Any

import pytest

from producer.model.job import Status
from tasks.job.context import JobContext
from tasks.lifecycle.outcomes import Stage
from tasks.lifecycle.rounds import begin
from tasks.lifecycle.stage import stage
from tasks.messaging.retry_policy import TryAgain
from tasks.operations.convert import execute
from tasks.testing import StreamTable
from tests.support import oracle
from tests.support.commits import ROWS, on_disk
from tests.support.faulty import Jobs


def test_the_delivery_that_lost_its_number_gives_way(
    stream: StreamTable, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It deletes its files, which the clean-up would not find, and the unit is staged by another attempt."""
    request = jobs.request()
    step = begin(request, jobs.settings)
    assert isinstance(step, Stage)
    context = JobContext.open(request.job, step.plan.location)
    records, before = context.store.at(step.plan), on_disk(stream)
    real = execute.convert

    def overtaken(*arguments: Any) -> Any:
        result = real(*arguments)
        (attempt,) = records.attempts(0)
        records.update_attempt(attempt.model_copy(update={"token": "0ther", "paths": ()}))
        return result

    with monkeypatch.context() as patch:
        patch.setattr(execute, "convert", overtaken)
        with pytest.raises(TryAgain, match="another worker has begun the same attempt"):
            stage(context, step.plan, 0, jobs.settings, lambda done, of: None)
    assert records.outcome(0) is None
    assert {path for path in on_disk(stream) - before if "_icefleet" not in path.parts} == set()
    jobs.stage(step)
    assert [attempt.number for attempt in records.attempts(0)] == [0, 1]
    assert jobs.end(step).status is Status.COMMITTED
    assert oracle.rows(stream.table) == ROWS
