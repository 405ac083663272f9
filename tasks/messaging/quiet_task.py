"""Tasks that run every minute, and are seen in Flower only when there is something to see."""

from __future__ import annotations

import time
import traceback
from typing import Any

from producer.common.redaction import masked
from tasks.messaging.redacted_task import DiscreetTask


class QuietTask(DiscreetTask):
    """A task without events of its own: it is told of when it has :meth:`found` something, or failed.

    Sweeps that find nothing would make a line in Flower's list each minute, among which the jobs' are lost.
    """

    abstract = True
    send_events = False

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task; a failure is told of."""
        started = time.time()
        try:
            return super().work(*args, **kwargs)
        except Exception as error:
            told = masked("".join(traceback.format_exception(error)))
            self._begun(started)
            self.send_event("task-failed", exception=masked(repr(error)), traceback=told)
            raise

    def found(self, result: str, started: float) -> str:
        """Tell of a run that began at `started` and has come to something; returns the result."""
        self._begun(started)
        self.send_event("task-succeeded", result=repr(masked(result)), runtime=time.time() - started)
        return result

    def _begun(self, started: float) -> None:
        self.send_event("task-received", name=self.name, args="()", kwargs="{}", retries=0, timestamp=started)
        self.send_event("task-started", timestamp=started)
