"""What all tasks do while their broker is away: the port is closed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from celery import Celery
from celery.exceptions import Reject

from tasks.messaging.base_task import RedactedTask
from tests.fleet.composefile import free_port


@pytest.fixture
def task() -> Iterator[RedactedTask]:
    """A task that a worker runs."""
    app = Celery("away", broker=f"redis://127.0.0.1:{free_port()}/0", set_as_current=False)
    app.conf.update(task_publish_retry=False, broker_transport_options={"max_retries": 0})

    @app.task(base=RedactedTask, bind=True, name="away.work", shared=False)  # else every other app takes it over
    def work(self: RedactedTask) -> None:
        """Do nothing."""

    work.push_request(id="1", called_directly=False, hostname="w@h", delivery_info={"routing_key": "q"}, retries=0)
    yield work
    work.pop_request()
    app.close()


def test_an_event_that_cannot_be_sent_stops_nothing(task: RedactedTask, caplog: pytest.LogCaptureFixture) -> None:
    task.send_event("task-progress", result="50% 1/2 files")
    assert "the event task-progress is not sent" in caplog.text


def test_a_message_that_cannot_be_sent_again_is_requeued(task: RedactedTask) -> None:
    with pytest.raises(Reject) as caught:
        task.retry(exc=OSError("storage is away"), countdown=0, throw=False)
    assert caught.value.requeue
