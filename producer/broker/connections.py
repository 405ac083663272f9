"""Connections to Redis and to the broker: one set per address, shared by everything that a process sends.

A connection is made when it is first needed and kept: a new one costs milliseconds of processor time, with TLS a tenth
of a second. Threads share connections; a broken one is replaced at its next use; a forked process makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:  # loaded with the first connection: reading a table alone does without them
    import redis
    from celery import Celery
    from kombu.pools import ProducerPool

T = TypeVar("T")

#: Messages that can be sent at the same time.
_SENDERS: Final = 10
#: Seconds. Enqueueing must not block on a server that accepts the connection and never answers.
_TIMEOUT: Final = 5

_lock = threading.Lock()
_open: dict[tuple[str, str], Any] = {}
#: Connections of the parent of a forked process: never closed here, since the server would close them for the parent.
_inherited: list[Any] = []


class Sender:
    """A Celery application that only sends, with a pool of connections."""

    def __init__(self, url: str) -> None:
        from kombu.pools import ProducerPool

        from producer.broker.application import Application

        self.app: Celery = Application("icefleet", broker=url, set_as_current=False)
        self.app.conf.update(task_send_sent_event=True, broker_connection_timeout=_TIMEOUT, task_ignore_result=True)
        self.on_redis = is_redis(url)
        if self.on_redis:
            self.app.conf.broker_transport_options = {"socket_connect_timeout": _TIMEOUT, "socket_timeout": _TIMEOUT}
        # Not Celery's own pool: forked processes share that.
        connections = self.app.connection_for_write().Pool(limit=_SENDERS)
        self.producers: ProducerPool = ProducerPool(connections=connections, limit=_SENDERS)  # type: ignore[no-untyped-call]

    def ping(self) -> None:
        """Check that the broker answers."""
        with self.producers.acquire(block=True) as producer:  # type: ignore[no-untyped-call]
            connection = producer.connection
            connection.ensure_connection(max_retries=1, interval_start=0.2, interval_max=0.2, timeout=_TIMEOUT)
            if self.on_redis:
                connection.default_channel.client.ping()

    def send(self, name: str, **options: Any) -> None:
        """Send a task."""
        with self.producers.acquire(block=True) as producer:  # type: ignore[no-untyped-call]
            self.app.send_task(name, producer=producer, **options)


def is_redis(url: str) -> bool:
    """Return whether an address belongs to Redis."""
    return url.startswith(("redis://", "rediss://"))


def sender_to(url: str) -> Sender:
    """Return the sender of a broker."""
    return _shared("broker", url, Sender)


def redis_at(url: str) -> redis.Redis:
    """Return the client of a Redis."""

    def connect(url: str) -> redis.Redis:
        import redis

        return redis.Redis.from_url(url, decode_responses=True, socket_connect_timeout=_TIMEOUT, socket_timeout=10)

    return _shared("redis", url, connect)


def _shared(kind: str, url: str, make: Callable[[str], T]) -> T:
    with _lock:
        if (kind, url) not in _open:
            _open[kind, url] = make(url)
        found: T = _open[kind, url]
        return found


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)
