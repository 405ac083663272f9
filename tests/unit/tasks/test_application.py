"""The Celery application of the fleet."""

from __future__ import annotations

import pytest

from tasks.application import app


class LongEnough(Exception):
    """The test has seen enough."""


def test_a_worker_waits_for_its_broker_without_limit() -> None:
    attempts = 0

    def failed(error: Exception, interval: float) -> None:
        nonlocal attempts
        attempts += 1
        if attempts > 150:
            raise LongEnough

    connection = app.connection("redis://127.0.0.1:9/0")
    with pytest.raises(LongEnough):
        connection.ensure_connection(
            failed, app.conf.broker_connection_max_retries, interval_start=0, interval_step=0, interval_max=0
        )
