"""A worker says in Redis that it lives and which messages it holds, and gives back what dead workers held.

A thread of the worker's main process, which holds the messages, does it three times in ``ICEFLEET_LEASE_SECONDS``:
what is held by a worker that is killed, machine and all, goes to another one in little more than that. Other brokers
than Redis see themselves when a worker dies.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Collection
from functools import cached_property
from typing import Any, Final

import redis
from celery.signals import task_received, worker_ready, worker_shutdown
from celery.worker import state
from celery.worker.request import Request

from producer.common.settings import Settings
from tasks.messaging.abandoned import VOUCHED, Abandoned, beats_of

log = logging.getLogger(__name__)

#: Seconds after a message came at which the worker vouches for it; those that come meanwhile go along.
_SOON: Final = 0.05


class Presence:
    """Beats, vouches and looks for as long as the worker lives.

    Args:
        settings: Where the broker is, and how long a worker may be silent.
        name: The worker's name in Flower.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        #: A worker that is started again under its name does not vouch for what the one before held.
        self.worker = f"{name}/{secrets.token_hex(4)}"
        self._settings = settings
        self._pause = settings.lease_seconds / 3
        self._vouched: set[str] = set()
        self._received, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._live, name="presence", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def receive(self) -> None:
        """Vouch soon for a message that has just come."""
        self._received.set()

    def stop(self) -> None:
        """Give back what is still held, and leave nothing that looks like a worker that died."""
        self._over.set()
        self._received.set()
        self._thread.join(self._pause)
        try:
            Abandoned(self._broker, self._settings.visibility_timeout).give_back_of(self.worker)
            self._vouch(frozenset())
            self._broker.delete(beats_of(self.worker))
        except redis.RedisError as error:
            log.warning("the worker cannot sign off: %s", error)

    @cached_property
    def _broker(self) -> redis.Redis:
        url = self._settings.broker_url
        return redis.Redis.from_url(url, decode_responses=True, socket_connect_timeout=5, socket_timeout=10)

    def _live(self) -> None:
        abandoned = Abandoned(self._broker, self._settings.visibility_timeout)
        next_beat = time.monotonic()
        while not self._over.is_set():
            due = time.monotonic() >= next_beat
            if due:
                next_beat = time.monotonic() + self._pause
            try:
                if due:
                    self._beat()
                self._vouch(held())
                if due:
                    abandoned.look()
            except redis.RedisError as error:
                log.warning("the worker cannot say that it lives: %s", error)
            except Exception:  # this thread has to live as long as the worker
                log.warning("what dead workers hold cannot be looked at", exc_info=True)
            if self._received.wait(max(next_beat - time.monotonic(), 0.0)):
                self._received.clear()
                self._over.wait(_SOON)

    def _beat(self) -> None:
        pipe = self._broker.pipeline(transaction=True)
        pipe.incr(beats_of(self.worker))
        pipe.expire(beats_of(self.worker), self._settings.visibility_timeout)
        pipe.execute()

    def _vouch(self, tags: Collection[str]) -> None:
        pipe = self._broker.pipeline(transaction=True)
        if tags:
            pipe.hset(VOUCHED, mapping=dict.fromkeys(tags, self.worker))
        if over := self._vouched.difference(tags):
            pipe.hdel(VOUCHED, *over)
        pipe.execute()
        self._vouched = set(tags)


def held() -> frozenset[str]:
    """Tags of the deliveries that this worker has not done with: what waits for its time, for a child, or runs."""
    while True:
        try:
            requests: list[Request] = [*state.scheduled_requests, *state.reserved_requests, *state.active_requests]
            return frozenset(str(request.message.delivery_tag) for request in requests)
        except RuntimeError:  # one came while they were looked at
            continue


def keep_present(settings: Settings) -> None:
    """Have the worker of this process say that it lives, if its broker is a Redis."""
    if not settings.broker_url.startswith(("redis://", "rediss://")):
        return
    present: list[Presence] = []

    def ready(sender: Any, **_: object) -> None:
        if not present:  # it becomes ready again each time that it lost Redis
            present.append(Presence(settings, str(sender.hostname)))
            present[0].start()

    def received(**_: object) -> None:
        for presence in present:
            presence.receive()

    def shut_down(**_: object) -> None:
        for presence in present:
            presence.stop()

    worker_ready.connect(ready, weak=False)
    task_received.connect(received, weak=False)
    worker_shutdown.connect(shut_down, weak=False)
