"""A worker's heartbeat in Redis: it shows that the worker lives, and which deliveries the worker holds.

A thread of the worker's main process, which holds the messages, does this three times in ``ICEFLEET_LEASE_SECONDS``,
and recovers the deliveries of dead workers: a message that a killed worker held, machine and all, goes to another
worker in little more than that time. Brokers other than Redis notice themselves when a worker dies.
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
from tasks.messaging.recovery import OWNERS, DeliveryRecovery, beats_key

log = logging.getLogger(__name__)

#: Seconds after a message came at which the worker records it as its own; messages that come meanwhile go along.
_RECORD_DELAY: Final = 0.05


class Heartbeat:
    """Beats, records deliveries and recovers those of dead workers for as long as the worker lives.

    Args:
        settings: Where the broker is, and how long a worker may be silent.
        name: The worker's name in Flower.
    """

    def __init__(self, settings: Settings, name: str) -> None:
        #: A worker that is started again under its name does not own what the one before held.
        self.worker = f"{name}/{secrets.token_hex(4)}"
        self._settings = settings
        self._interval = settings.lease_seconds / 3
        self._recorded: set[str] = set()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def record_soon(self) -> None:
        """Record soon a message that has just come."""
        self._wake.set()

    def stop(self) -> None:
        """Give back what the worker still holds, and remove all traces that would look like a dead worker."""
        self._stop.set()
        self._wake.set()
        self._thread.join(self._interval)
        try:
            DeliveryRecovery(self._broker, self._settings.visibility_timeout).give_back_all_of(self.worker)
            self._record(frozenset())
            self._broker.delete(beats_key(self.worker))
        except redis.RedisError as error:
            log.warning("the worker cannot sign off: %s", error)

    @cached_property
    def _broker(self) -> redis.Redis:
        url = self._settings.broker_url
        return redis.Redis.from_url(url, decode_responses=True, socket_connect_timeout=5, socket_timeout=10)

    def _run(self) -> None:
        recovery = DeliveryRecovery(self._broker, self._settings.visibility_timeout)
        next_beat = time.monotonic()
        while not self._stop.is_set():
            due = time.monotonic() >= next_beat
            if due:
                next_beat = time.monotonic() + self._interval
            try:
                if due:
                    self._beat()
                self._record(held_deliveries())
                if due:
                    recovery.scan()
            except redis.RedisError as error:
                log.warning("the worker cannot send its heartbeat: %s", error)
            except Exception:  # this thread has to live as long as the worker
                log.warning("the deliveries of dead workers cannot be recovered", exc_info=True)
            if self._wake.wait(max(next_beat - time.monotonic(), 0.0)):
                self._wake.clear()
                self._stop.wait(_RECORD_DELAY)

    def _beat(self) -> None:
        pipe = self._broker.pipeline(transaction=True)
        pipe.incr(beats_key(self.worker))
        pipe.expire(beats_key(self.worker), self._settings.visibility_timeout)
        pipe.execute()

    def _record(self, tags: Collection[str]) -> None:
        """Record this worker as the owner of exactly these deliveries."""
        pipe = self._broker.pipeline(transaction=True)
        if tags:
            pipe.hset(OWNERS, mapping=dict.fromkeys(tags, self.worker))
        if released := self._recorded.difference(tags):
            pipe.hdel(OWNERS, *released)
        pipe.execute()
        self._recorded = set(tags)


def held_deliveries() -> frozenset[str]:
    """Return the tags of the deliveries that this worker holds: scheduled, reserved for a child, or active."""
    while True:
        try:
            requests: list[Request] = [*state.scheduled_requests, *state.reserved_requests, *state.active_requests]
            return frozenset(str(request.message.delivery_tag) for request in requests)
        except RuntimeError:  # one came during the iteration
            continue


def send_heartbeats(settings: Settings) -> None:
    """Have the worker of this process send heartbeats, if its broker is a Redis."""
    if not settings.broker_url.startswith(("redis://", "rediss://")):
        return
    running: list[Heartbeat] = []

    def ready(sender: Any, **_: object) -> None:
        if not running:  # it becomes ready again each time that it lost Redis
            running.append(Heartbeat(settings, str(sender.hostname)))
            running[0].start()

    def received(**_: object) -> None:
        for heartbeat in running:
            heartbeat.record_soon()

    def shut_down(**_: object) -> None:
        for heartbeat in running:
            heartbeat.stop()

    worker_ready.connect(ready, weak=False)
    task_received.connect(received, weak=False)
    worker_shutdown.connect(shut_down, weak=False)
