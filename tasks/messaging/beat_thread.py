"""The sweeper's clock inside of a worker: ``icefleet worker --beat``."""

from __future__ import annotations

from typing import Any

from celery import Celery, bootsteps
from celery.beat import EmbeddedService


class Clock(bootsteps.StartStopStep):
    """A thread of the worker's own process, so that it lives exactly as long as the worker.

    Celery's own ``--beat`` is a child process that nobody starts again when it dies: the worker would go on, and what
    lost a message would wait for ever.
    """

    label = "Clock"

    def create(self, worker: Any) -> Any:
        """The clock; what it keeps in memory is enough for one schedule."""
        return EmbeddedService(worker.app, thread=True, scheduler_cls="celery.beat:Scheduler")


def keep_time(app: Celery) -> None:
    """Have the worker of this process wake the sweeper too."""
    app.steps["worker"].add(Clock)
