"""How a worker stops: it finishes what it holds for a while, then gives it back.

Celery's warm shutdown waits for running tasks without limit; what is killed in the end comes back only when the
broker's visibility timeout has passed. A cold shutdown gives it back at once. Here the warm one becomes a cold one
after ``ICEFLEET_SHUTDOWN_SECONDS``, or when SIGTERM comes a second time.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from celery.signals import worker_shutting_down

from producer.common.settings import Settings


def drain(settings: Settings) -> None:
    """Have the worker of this process drain when it is told to stop."""

    def shutting_down(how: str, **_: object) -> None:
        if how.lower() != "warm":
            return
        timer = threading.Timer(settings.shutdown_seconds, _give_back)
        timer.daemon = True
        timer.start()
        signal.signal(signal.SIGTERM, _again)

    worker_shutting_down.connect(shutting_down, weak=False)


def _give_back() -> None:
    os.kill(os.getpid(), signal.SIGQUIT)


def _again(_signal: int, _frame: FrameType | None) -> None:
    _give_back()
