"""Connections to Redis and to the broker: one set for each address, shared by all that a process sends.

They are made when something first needs them and kept: a new one costs milliseconds of processor time, with TLS a tenth
of a second. Threads may use them side by side; what broke meanwhile is replaced when it is used next; and a process
that was forked makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:  # loaded with the first connection: whoever looks at a table alone does without them
    import redis
    from celery import Celery
    from kombu.pools import ProducerPool

T = TypeVar("T")

#: Messages that are sent side by side.
_SENDERS: Final = 10
#: Seconds. Whoever enqueues must not wait for ever on one that takes the connection and says nothing.
_TIMEOUT: Final = 5

_lock = threading.Lock()
_open: dict[tuple[str, str], Any] = {}
#: What the process that this one was forked from uses: never closed here, for that would be heard at the other end.
_inherited: list[Any] = []


class Sender:
    """The way to a broker: an application that serves nothing, and connections to publish with."""

    def __init__(self, url: str) -> None:
        from kombu.pools import ProducerPool

        from producer.broker.application import Application

        self.app: Celery = Application("icefleet", broker=url, set_as_current=False)
        self.app.conf.update(task_send_sent_event=True, broker_connection_timeout=_TIMEOUT, task_ignore_result=True)
        self.on_redis = is_redis(url)
        if self.on_redis:
            self.app.conf.broker_transport_options = {"socket_connect_timeout": _TIMEOUT, "socket_timeout": _TIMEOUT}
        # Celery's own pool is shared with processes that are forked.
        connections = self.app.connection_for_write().Pool(limit=_SENDERS)
        self.producers: ProducerPool = ProducerPool(connections=connections, limit=_SENDERS)  # type: ignore[no-untyped-call]

    def ping(self) -> None:
        """Have the broker answer."""
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
    """Whether an address is one of Redis."""
    return url.startswith(("redis://", "rediss://"))


def sender_to(url: str) -> Sender:
    """The way to a broker."""
    return _shared("broker", url, Sender)


def redis_at(url: str) -> redis.Redis:
    """The client of a Redis."""

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
