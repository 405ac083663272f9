"""A worker's child processes: each warms its Spark session, replaces one that has grown, and leaves nothing behind."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from celery.signals import task_postrun, worker_process_init, worker_process_shutdown

from producer.common.settings import Settings
from tasks.lifecycle.stage import budget_of
from workers.runtime import session
from workers.runtime.machine import process_tree_memory
from workers.runtime.session import NoJava

log = logging.getLogger(__name__)

#: Seconds between two checks of the memory.
_CHECK_SECONDS: Final = 5.0
#: Seconds for a session that is starting to find that its JVM has ended.
_JOIN_SECONDS: Final = 2.0


class ChildSession:
    """The Spark session of a child process that stages units."""

    def __init__(self, settings: Settings) -> None:
        self._budget = budget_of(settings)
        self._spill = Path(settings.scratch_dir) if settings.scratch_dir else None
        self._stopping = threading.Event()
        self._checked_at = 0.0
        self._thread: threading.Thread | None = None

    def connect(self) -> None:
        """Connect to Celery's signals, in this process and the children that it forks from now on."""
        worker_process_init.connect(self._warm_up, weak=False)
        task_postrun.connect(self._restart_if_large, weak=False)
        worker_process_shutdown.connect(self._end, weak=False)

    def _warm_up(self, **_: object) -> None:
        # Celery kills a child that takes more than four seconds to start.
        self._thread = threading.Thread(target=self._warm, name="warm", daemon=True)
        self._thread.start()

    def _warm(self) -> None:
        try:
            session.warm(self._budget, self._spill)
        except NoJava as error:
            log.error("%s", error)
        except Exception:
            if not self._stopping.is_set():
                log.warning("Spark did not start; the next unit that needs it tries again", exc_info=True)

    def _restart_if_large(self, **_: object) -> None:
        """Replace a session that uses more memory between tasks than it may, in the background."""
        now = time.monotonic()
        if now < self._checked_at + _CHECK_SECONDS or not session.running(self._budget):
            return
        self._checked_at = now
        used = process_tree_memory()
        if used > self._budget.idle_bytes:
            log.info("%d MB are in use, more than %d: Spark starts again", used >> 20, self._budget.idle_bytes >> 20)
            session.close()
            self._warm_up()

    def _end(self, **_: object) -> None:
        self._stopping.set()
        session.end()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)  # it removes what a start of a JVM leaves
