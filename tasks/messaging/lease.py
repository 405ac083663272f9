"""The lease of a unit: held and renewed by the process that works on it, dropped for a process that was killed."""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import Any, Final, Self

from celery.worker.request import Request
from redis.exceptions import RedisError

from producer.broker.leases import Leases
from producer.broker.queue import UnitMessage, parse_message
from producer.common.errors import Refused
from producer.common.settings import Settings

log = logging.getLogger(__name__)

#: The least seconds between two renewals, however frequent the progress.
_MIN_INTERVAL: Final = 1.0


class HeldByAnother(Exception):
    """Another worker holds the unit and is alive: the message goes back to the queue."""


class Lease:
    """Holds a unit for as long as its ``with`` block lasts.

    A process that is stopped for a while may find, when it goes on, that another worker holds the unit now. Both then
    work on it, which is allowed: the first staged record counts.

    Raises:
        HeldByAnother: On entering, another worker holds the unit.
    """

    def __init__(self, settings: Settings, job: str, task: str, worker: str) -> None:
        self._leases = Leases(settings)
        self._interval = settings.lease_seconds / 3
        self._job, self._task, self._worker = job, task, worker
        self._token = process_token(worker, os.getpid())
        self._files = (0, 0)
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Take the lease, and begin to renew it."""
        other = self._leases.acquire(self._job, self._task, self._worker, self._token)
        if other is not None:
            raise HeldByAnother(f"{other} is working on it")
        if self._leases:
            self._thread.start()
        return self

    def progress(self, done: int, files: int) -> None:
        """Note how many of the unit's data files are done."""
        self._files = (done, files)
        self._wake.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Drop the lease."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(self._interval)
        _drop(self._leases, self._job, self._task, self._token)

    def _renew(self) -> None:
        while not self._stop.is_set():
            renewed = True
            try:
                self._leases.renew(self._job, self._task, self._token, *self._files)
            except RedisError as error:
                renewed = False
                log.warning("the lease of %s cannot be renewed: %s", self._task, error)
            if not self._stop.wait(_MIN_INTERVAL) and renewed:  # else again at once
                self._wake.wait(max(self._interval - _MIN_INTERVAL, 0.0))
                self._wake.clear()


class UnitRequest(Request):
    """A unit's request in the worker's main process: drops the lease when the child that holds it is killed.

    The message goes back to the queue at once, and the worker that takes it need not wait until the lease lapses.
    """

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        """Drop the lease unless the child has returned, which drops it itself; Celery does the rest."""
        if not return_ok:
            self._drop_lease()
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok)

    def on_timeout(self, soft: bool, timeout: float) -> None:
        """Drop the lease when the child was killed for taking too long; Celery does the rest."""
        if not soft:
            self._drop_lease()
        super().on_timeout(soft, timeout)

    def cancel(self, *arguments: Any, **named: Any) -> Any:
        """Drop the lease when the worker stops and gives the unit back; Celery does the rest."""
        done = super().cancel(*arguments, **named)
        self._drop_lease()
        return done

    def _drop_lease(self) -> None:
        if self.worker_pid is None:
            return
        try:
            order = parse_message(UnitMessage, self.kwargs)
        except Refused:
            return
        _drop(Leases(Settings.load()), order.job, self.id, process_token(self.hostname, self.worker_pid))


def process_token(worker: str, pid: int) -> str:
    """Return a token that distinguishes processes of workers with one name."""
    return f"{worker}/{pid}"


def _drop(leases: Leases, job: str, task: str, token: str) -> None:
    """Drop a lease if Redis answers; otherwise it lapses."""
    try:
        leases.release(job, task, token)
    except RedisError as error:
        log.warning("the lease of %s cannot be dropped, it lapses: %s", task, error)
