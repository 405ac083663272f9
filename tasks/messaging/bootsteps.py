"""What the fleet adds to a Celery worker's process: a clock for the sweeper, and a warm shutdown with a time limit."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from celery import Celery, bootsteps
from celery.beat import EmbeddedService
from celery.signals import worker_shutting_down

from producer.common.settings import Settings


class EmbeddedBeat(bootsteps.StartStopStep):
    """Celery beat as a thread of the worker's own process, so that it lives exactly as long as the worker.

    Celery's own ``--beat`` is a child process that nobody starts again when it dies: the worker would go on, and jobs
    that lost a message would wait for ever.
    """

    label = "Beat"

    def create(self, worker: Any) -> Any:
        """Create the scheduler; one in memory is enough for one schedule."""
        return EmbeddedService(worker.app, thread=True, scheduler_cls="celery.beat:Scheduler")


def embed_beat(app: Celery) -> None:
    """Have the worker of this process wake the sweeper too."""
    app.steps["worker"].add(EmbeddedBeat)


def limit_warm_shutdown(settings: Settings) -> None:
    """Turn a warm shutdown into a cold one after ``ICEFLEET_SHUTDOWN_SECONDS``, or at the second SIGTERM.

    Celery's warm shutdown waits for running tasks without limit, and a task that is killed in the end comes back only
    after the broker's visibility timeout. A cold shutdown gives its message back at once.
    """

    def shutting_down(how: str, **_: object) -> None:
        if how.lower() != "warm":
            return
        timer = threading.Timer(settings.shutdown_seconds, _shut_down_cold)
        timer.daemon = True
        timer.start()
        signal.signal(signal.SIGTERM, _on_second_sigterm)

    worker_shutting_down.connect(shutting_down, weak=False)


def _shut_down_cold() -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


def _on_second_sigterm(_signal: int, _frame: FrameType | None) -> None:
    _shut_down_cold()
