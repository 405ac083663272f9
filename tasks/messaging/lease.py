"""The lease of a unit while this process works on it, renewed by a thread."""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import Final, Self

from redis.exceptions import RedisError

from producer.broker.leases import Holders
from producer.common.settings import Settings

log = logging.getLogger(__name__)

#: Seconds that lie at least between two renewals, however often progress is made.
_AT_MOST: Final = 1.0


class HeldByAnother(Exception):
    """Another worker is at the unit, and was seen lately: it is looked at again later."""


class Lease:
    """Holds a unit for as long as its ``with`` block lasts.

    A process that dies renews nothing. One that is stopped for a while may find, when it goes on, that another worker
    holds the unit now. Both then work on it, which is allowed: the first staged record counts.

    Args:
        settings: Where Redis is, and how long a worker may be silent.
        job: The unit's job.
        task: The id of the unit's task.
        worker: The name of this worker in Flower.

    Raises:
        HeldByAnother: on entering, another worker holds the unit.
    """

    def __init__(self, settings: Settings, job: str, task: str, worker: str) -> None:
        self._holders = Holders(settings)
        self._pause = settings.lease_seconds / 3
        self._job, self._task, self._worker = job, task, worker
        self._token = token_of(worker, os.getpid())
        self._files = (0, 0)
        self._stirred, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Take the lease, and begin to renew it."""
        other = self._holders.take(self._job, self._task, self._worker, self._token)
        if other is not None:
            raise HeldByAnother(f"{other} is working on it")
        if self._holders:
            self._thread.start()
        return self

    def progress(self, done: int, files: int) -> None:
        """Note how many of the unit's data files are done."""
        self._files = (done, files)
        self._stirred.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the lease up."""
        self._over.set()
        self._stirred.set()
        if self._thread.is_alive():
            self._thread.join(self._pause)
        forget(self._holders, self._job, self._task, self._token)

    def _renew(self) -> None:
        while not self._over.is_set():
            renewed = True
            try:
                self._holders.renew(self._job, self._task, self._token, *self._files)
            except RedisError as error:
                renewed = False
                log.warning("the lease of %s cannot be renewed: %s", self._task, error)
            if not self._over.wait(_AT_MOST) and renewed:  # else again at once
                self._stirred.wait(max(self._pause - _AT_MOST, 0.0))
                self._stirred.clear()


def forget(holders: Holders, job: str, task: str, token: str) -> None:
    """Give a lease up where Redis answers; else it lapses."""
    try:
        holders.drop(job, task, token)
    except RedisError as error:
        log.warning("the lease of %s cannot be given up, it lapses: %s", task, error)


def token_of(worker: str, pid: int) -> str:
    """What tells processes of workers with one name apart."""
    return f"{worker}/{pid}"
