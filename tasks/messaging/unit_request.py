"""Units as the worker's main process sees them, while a child works on them."""

from __future__ import annotations

from typing import Any

from celery.worker.request import Request

from producer.broker.leases import Holders
from producer.broker.messages import UnitOrder, order_of
from producer.common.errors import Refused
from producer.common.settings import Settings
from tasks.messaging.lease import forget, token_of


class UnitRequest(Request):
    """A unit in the hands of a child: when the child is killed, its lease is given up for it.

    The message goes back to the queue at once, and whoever takes it need not wait until the lease lapses.
    """

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Give the lease up unless the child has returned, which does so itself; Celery does the rest."""
        if not return_ok:
            self._forget()
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Give the lease up when the child was killed for taking too long; Celery does the rest."""
        if not soft:
            self._forget()
        super().on_timeout(soft, timeout)

    def cancel(self, *arguments: Any, **named: Any) -> Any:
        """Give the lease up when the worker stops and gives the unit back; Celery does the rest."""
        done = super().cancel(*arguments, **named)
        self._forget()
        return done

    def _forget(self) -> None:
        if self.worker_pid is None:
            return
        try:
            order = order_of(UnitOrder, self.kwargs)
        except Refused:
            return
        forget(Holders(Settings.load()), order.job, self.id, token_of(self.hostname, self.worker_pid))
