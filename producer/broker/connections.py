"""Connections to Redis and to the broker: one set per address, shared by everything that a process sends; their errors.

A connection is made when it is first needed and kept: a new one costs milliseconds of processor time, with TLS a tenth
of a second. Threads share connections; a broken one is replaced at its next use; a forked process makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar

from producer.common.errors import Reason, Refused
from producer.common.redaction import redact

if TYPE_CHECKING:  # loaded with the first connection: reading a table alone does without them
    import redis
    from celery import Celery
    from kombu.pools import ProducerPool

    from producer.common.settings import Settings

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

    return _shared("Redis", url, connect)


class FleetRedis:
    """The base of what uses a fleet's Redis; false if the fleet has none."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url

    def __bool__(self) -> bool:
        return bool(self._url)

    @property
    def _redis(self) -> redis.Redis:
        return redis_at(self._url)


def _shared(kind: str, url: str, make: Callable[[str], T]) -> T:
    with _lock:
        if (kind, url) not in _open:
            try:
                _open[kind, url] = make(url)
            except ImportError as error:
                raise connection_error(url, error, what=kind) from error
        found: T = _open[kind, url]
        return found


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


#: Signs of a cause in an error's text, and the sentence about it; the first that is found counts.
_CAUSES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("certificate_verify_failed", "certificate verify failed"),
        "its certificate is not trusted: name the authority that signed it with ssl_ca_certs=… in the address, and the "
        "host by a name that the certificate has",
    ),
    (
        ("invalid username-password", "wrongpass", "access_refused", "login was refused"),
        "user or password is wrong; special characters in a password are percent-encoded in an address",
    ),
    (
        ("authentication required", "noauth", "hello must be called"),
        "it wants a password, and the address has none: put :PASSWORD@ or USER:PASSWORD@ before the host",
    ),
    (("no permissions", "noperm"), "the user lacks rights: deploy/users.acl has those that Icefleet needs"),
    (("db index is out of range",), "it has no database of the number at the address's end: 0 is always there"),
    (("loading",), "it is loading its data: try again in a moment"),
    (
        ("name or service not known", "nodename nor servname", "name resolution", "no address associated"),
        "no host of that name is known here: check the name, or the DNS of this machine",
    ),
    (("refused",), "nothing listens there: is it running, at this port and on this address (bind in redis.conf)?"),
    (("no such transport",), "no broker goes by that scheme: write an address such as redis://localhost:6379/0"),
)
_SPEAKS_NO_TLS: Final = "it seems to speak no TLS at this port: write redis://, or name its port for TLS"
_SPEAKS_TLS: Final = "it closes the connection unasked: if it speaks TLS at this port, write rediss://"
_SILENT: Final = "nothing came back in time: does a firewall drop connections, is it the right address?"


def connection_error(url: str, error: BaseException, *, what: str = "broker") -> Refused:
    """Return the error for a broker or a Redis that cannot be reached, with the likely cause and what to do.

    ``error`` is the error of its client, and ``what`` the word for it in the sentence.
    """
    if isinstance(error, ImportError):
        package, install = error.name, _distribution(url, error.name or "")
        return Refused(
            Reason.CONFIGURATION,
            f"The {what} at {redact(url)} needs the package {package}, which is not installed here: install {install}.",
        )
    messages = list(dict.fromkeys(_messages(error)))
    detail = next((text for text in messages if text), type(error).__name__).rstrip(".")
    cause = _likely_cause(url, messages)
    return Refused(Reason.BROKER, f"The {what} at {redact(url)} does not answer: {cause} ({detail}).")


def _distribution(url: str, package: str) -> str:
    """Return what has to be installed for a package that a broker of this address needs."""
    if package.partition(".")[0] in ("celery", "kombu", "redis"):
        return "celery[redis], which icefleet requires"
    scheme = url.partition("://")[0].partition("+")[0].lower()
    return f"celery[{scheme}]" if scheme in (metadata("celery").get_all("Provides-Extra") or ()) else package


def _likely_cause(url: str, messages: list[str]) -> str:
    text = " ".join(messages).lower()
    for signs, cause in _CAUSES:
        if any(sign in text for sign in signs):
            return cause
    secure = url.startswith("rediss://")
    if secure and any(sign in text for sign in ("ssl", "tls", "timeout", "timed out", "reset", "closed")):
        return _SPEAKS_NO_TLS
    if "reset by peer" in text or "closed" in text:
        return _SPEAKS_TLS
    if "timeout" in text or "timed out" in text:
        return _SILENT
    return "is it running?"


def _messages(error: BaseException | None) -> Iterator[str]:
    """Yield the first line of an error and of those that it comes from."""
    while error is not None:
        yield next(iter(str(error).strip().strip("'").splitlines()), "")
        error = error.__cause__ or error.__context__
