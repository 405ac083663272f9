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

#: Seconds between two looks at the memory.
_EVERY: Final = 5.0
#: Seconds for a session that is being made to find that its JVM is gone.
_TIDY: Final = 2.0


class Child:
    """The Spark session of one child of a worker that stages units."""

    def __init__(self, settings: Settings) -> None:
        self._budget = budget_of(settings)
        self._spill = Path(settings.scratch_dir) if settings.scratch_dir else None
        self._ending = threading.Event()
        self._looked = 0.0
        self._warming: threading.Thread | None = None

    def connect(self) -> None:
        """Have the children that this process forks from now on do so."""
        worker_process_init.connect(self._started, weak=False)
        task_postrun.connect(self._done, weak=False)
        worker_process_shutdown.connect(self._ended, weak=False)

    def _started(self, **_: object) -> None:
        # Celery kills a child that takes more than four seconds to start.
        self._warming = threading.Thread(target=self._warm, name="warm", daemon=True)
        self._warming.start()

    def _warm(self) -> None:
        try:
            session.warm(self._budget, self._spill)
        except NoJava as error:
            log.error("%s", error)
        except Exception:
            if not self._ending.is_set():
                log.warning("Spark did not start; the next unit that needs it tries again", exc_info=True)

    def _done(self, **_: object) -> None:
        """After a task: a session that keeps more memory than it may is replaced, while other work goes on."""
        now = time.monotonic()
        if now < self._looked + _EVERY or not session.running(self._budget):
            return
        self._looked = now
        used = process_tree_memory()
        if used > self._budget.idle_bytes:
            log.info("%d MB are in use, more than %d: Spark starts again", used >> 20, self._budget.idle_bytes >> 20)
            session.close()
            self._started()

    def _ended(self, **_: object) -> None:
        self._ending.set()
        session.end()
        if self._warming is not None:
            self._warming.join(_TIDY)  # it removes what starting a JVM has left
