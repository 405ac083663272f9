"""Celery's transport for Redis: one that takes no writes counts as away, so that workers and beat wait for it.

Celery ends a worker at any error that Redis answers with. But a Redis recovers whose disk or memory was full, that was
a replica for a while, or whose rights were wrong while somebody changed them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Final

from kombu.transport import redis, virtual
from redis import exceptions

from producer.broker.connections import check_writes, connection_error, why_no_writes

log = logging.getLogger(__name__)

#: Seconds between two warnings.
_WARN_SECONDS: Final = 60.0


class Deliveries(redis.QoS):
    """The deliveries that a worker has not acknowledged.

    A delivery that cannot be acknowledged makes room for the next one all the same, or the worker would take no other
    message. Redis keeps it, and it is delivered again: heartbeats recover what no worker holds.
    """

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a delivery."""
        self._settle(super().ack, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Drop or requeue a delivery."""
        self._settle(super().reject, delivery_tag, requeue)

    def restore_unacked(self, client: Any = None) -> None:
        """Requeue what is not acknowledged when a channel is closed, if there is a connection."""
        try:
            super().restore_unacked(client)  # type: ignore[no-untyped-call]
        except (exceptions.RedisError, AttributeError) as error:  # of a connection that was closed before its channel
            log.warning("%d messages are not requeued, and will be delivered again: %s", len(self._delivered), error)
            self._delivered.clear()

    def _settle(self, settle: Callable[..., None], delivery_tag: str, *arguments: bool) -> None:
        try:
            try:
                settle(delivery_tag, *arguments)
            except (exceptions.TimeoutError, exceptions.ConnectionError):  # closes that connection
                settle(delivery_tag, *arguments)
        except exceptions.RedisError as error:
            log.warning("A message is not acknowledged, and will be delivered again: %s", error)
            virtual.QoS.ack(self, delivery_tag)  # type: ignore[no-untyped-call]


class DeliveryChannel(redis.Channel):
    """A channel with these deliveries."""

    QoS = Deliveries


class Transport(redis.Transport):
    """Connects to a Redis that takes writes, and loses the connection to one that ceases to."""

    Channel = DeliveryChannel
    connection_errors = (
        *redis.Transport.connection_errors,
        exceptions.OutOfMemoryError,
        exceptions.ReadOnlyError,
        exceptions.NoPermissionError,
    )
    _next_warning = 0.0

    def establish_connection(self) -> Any:
        """Connect; Celery tries again after an error, and this warns of it once a minute."""
        try:
            super().establish_connection()  # type: ignore[no-untyped-call]
            check_writes(self._avail_channels[-1].client)
        except (*self.connection_errors, *self.channel_errors) as error:
            while self._avail_channels:
                self._avail_channels.pop().close()
            if time.monotonic() >= Transport._next_warning:
                Transport._next_warning = time.monotonic() + _WARN_SECONDS
                url = self.client.as_uri(include_password=True)  # type: ignore[union-attr]
                log.warning("%s Waiting for it.", connection_error(url, error))
            raise
        Transport._next_warning = 0.0
        return self

    def on_readable(self, fileno: int) -> None:  # type: ignore[override]
        """Read what Redis has sent; redis-py has no class for some refusals of a write."""
        try:
            super().on_readable(fileno)  # type: ignore[no-untyped-call]
        except exceptions.ResponseError as error:
            if why_no_writes(error):
                raise exceptions.ConnectionError(str(error)) from error
            raise
