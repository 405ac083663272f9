"""The Celery application of the fleet."""

from __future__ import annotations

from datetime import timedelta

import pytest
from celery.schedules import maybe_schedule

from producer.model.job import Operation
from tasks.application import app
from tasks.operations.registry import OPERATIONS


def test_every_operation_is_registered() -> None:
    assert set(OPERATIONS) == set(Operation)


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


@pytest.mark.parametrize(
    ("last_run", "due"), [(timedelta(), False), (-timedelta(days=1), True), (timedelta(days=1), True)]
)
def test_sweeps_go_on_when_the_clock_is_set_back(last_run: timedelta, due: bool) -> None:
    interval = maybe_schedule(app.conf.beat_schedule["sweep"]["schedule"], app=app)
    assert interval.is_due(app.now() + last_run).is_due is due


def test_a_sweep_expires_that_nobody_takes() -> None:
    """Hours of them would run one after another; but clocks of machines may differ by minutes."""
    assert 900 < app.conf.beat_schedule["sweep"]["options"]["expires"] <= 3600
