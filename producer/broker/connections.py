"""Connections to Redis and to the broker: one set per address, shared by everything that a process sends; their errors.

A connection is made when it is first needed and kept: a new one costs milliseconds of processor time, with TLS a tenth
of a second. Threads share connections; a broken one is replaced at its next use; a forked process makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import metadata
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

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
_open: dict[tuple[Callable[[str], Any], str], Any] = {}
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
        """Check that the broker answers and, if it is Redis, takes writes."""
        with self.producers.acquire(block=True) as producer:  # type: ignore[no-untyped-call]
            connection = producer.connection
            connection.ensure_connection(max_retries=1, interval_start=0.2, interval_max=0.2, timeout=_TIMEOUT)
            if self.on_redis:
                check_writes(connection.default_channel.client)

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
    return _shared("Redis", url, _connect)


def check_redis(url: str) -> None:
    """Check once that a Redis answers: the client of :func:`redis_at` would wait for many TLS handshakes in a row.

    Raises:
        Refused: It does not answer; the sentence names the likely cause.
    """
    client = _shared("Redis", url, _connect_once)
    from redis.exceptions import RedisError

    try:
        client.ping()
    except RedisError as error:
        raise connection_error(url, error, what="Redis") from error


def check_writes(client: redis.Redis) -> None:
    """Check that a Redis takes writes: a replica and one whose memory is full answer a PING all the same."""
    client.set("icefleet:check", "", ex=1)


def _connect(url: str, timeout: int = 10, **options: Any) -> redis.Redis:
    import redis

    return redis.Redis.from_url(
        url, decode_responses=True, socket_connect_timeout=_TIMEOUT, socket_timeout=timeout, **options
    )


def _connect_once(url: str) -> redis.Redis:
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    return _connect(url, _TIMEOUT, retry=Retry(NoBackoff(), 0))


class FleetRedis:
    """The base of what uses a fleet's Redis; false if the fleet has none."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url

    def __bool__(self) -> bool:
        return bool(self._url)

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Turn an error of Redis in the block into a refusal that names the likely cause."""
        try:
            yield
        except Exception as error:  # not by its class, which takes time to load
            if not is_of_broker(error):
                raise
            raise connection_error(self._url, error, what="Redis") from error

    @property
    def _redis(self) -> redis.Redis:
        return redis_at(self._url)


def _shared(what: str, url: str, make: Callable[[str], T]) -> T:
    with _lock:
        if (make, url) not in _open:
            try:
                _open[make, url] = make(url)
            except ImportError as error:
                raise connection_error(url, error, what=what) from error
        found: T = _open[make, url]
        return found


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _inherited.extend(_open.values())
    _open.clear()


os.register_at_fork(after_in_child=_after_fork)


#: Signs in an error's text, and the sentence about their cause; the first that is found counts. Of a clock or a
#: certificate, which may be mended while the address is right:
_DATES: Final = (
    (("certificate has expired",), "its certificate has expired: renew it, or check the clock of this machine"),
    (("certificate is not yet valid",), "its certificate is not valid yet: check the clock of this machine"),
)
#: Of a wrong address:
_WRONG: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
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
    (
        ("no_certificate_or_crl_found", "no certificate or crl found"),
        "the file that ssl_ca_certs names holds no certificate in PEM",
    ),
    (("no permissions", "noperm"), "the user lacks rights: deploy/users.acl has those that Icefleet needs"),
    (("db index is out of range",), "it has no database of the number at the address's end: 0 is always there"),
    (("no such transport",), "no broker goes by that scheme: write an address such as redis://localhost:6379/0"),
)
#: Of a Redis that refuses writes.
_NO_WRITES: Final = (
    (("misconf",), "it cannot save to its disk: free some space there, or let it write there, as its own log says"),
    (
        ("read only replica", "unblocked", "link with master is down"),
        "it is a replica: name its master in the address, or make it one with REPLICAOF NO ONE",
    ),
    (("used memory > 'maxmemory'",), "its memory is full: raise maxmemory, or keep nothing else in this Redis"),
    (("noreplicas",), "it has fewer replicas than its min-replicas-to-write: start them"),
)
#: Of one that is away.
_AWAY: Final = (
    (("loading",), "it is loading its data: try again in a moment"),
    (
        ("name or service not known", "nodename nor servname", "name resolution", "no address associated"),
        "no host of that name is known here: check the name, or the DNS of this machine",
    ),
    (("refused",), "nothing listens there: is it running, at this port, and bound to this address?"),
)
#: Options of an address that name files.
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_NO_FILE: Final = "the address names a file that does not exist"
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
    detail = next((line for line in messages if line), type(error).__name__).rstrip(".")
    text = " ".join(messages).lower()
    wrong, no_writes = _find(_DATES, text) or _find(_WRONG, text) or _missing_file(url, text), why_no_writes(error)
    cause = wrong or no_writes or _find(_AWAY, text) or _guess(url, text)
    if no_writes:
        return Refused(Reason.BROKER, f"The {what} at {redact(url)} takes no writes: {cause} ({detail}).")
    return Refused(Reason.BROKER, f"The {what} at {redact(url)} does not answer: {cause} ({detail}).")


def is_of_broker(error: BaseException) -> bool:
    """Return whether a client of the broker or of Redis raised an error."""
    return type(error).__module__.partition(".")[0] in ("redis", "kombu")


def is_away(error: Refused) -> bool:
    """Return whether a :func:`connection_error` is about a broker that may come back: its address is not wrong."""
    causes = (_NO_FILE, *(cause for _, cause in _WRONG))
    return error.reason is Reason.BROKER and not any(cause in str(error) for cause in causes)


def why_no_writes(error: BaseException) -> str | None:
    """Return why a Redis takes no writes and what to do, or None for any other error."""
    return _find(_NO_WRITES, " ".join(_messages(error)).lower())


def _distribution(url: str, package: str) -> str:
    """Return what has to be installed for a package that a broker of this address needs."""
    if package.partition(".")[0] in ("celery", "kombu", "redis"):
        return "celery[redis], which icefleet requires"
    scheme = url.partition("://")[0].partition("+")[0].lower()
    return f"celery[{scheme}]" if scheme in (metadata("celery").get_all("Provides-Extra") or ()) else package


def _find(causes: tuple[tuple[tuple[str, ...], str], ...], text: str) -> str | None:
    return next((cause for signs, cause in causes if any(sign in text for sign in signs)), None)


def _missing_file(url: str, text: str) -> str | None:
    """Return that a file of the address is missing; the error says only that one is."""
    if "no such file" not in text:
        return None
    options = ((name, path) for name, path in parse_qsl(urlsplit(url).query) if name in _FILES)
    return next((f"{_NO_FILE}, {name}={path}" for name, path in options if not os.path.exists(path)), None)


def _guess(url: str, text: str) -> str:
    scheme = url.partition("://")[0]
    silent = "timeout" in text or "timed out" in text
    broken = "reset by peer" in text or "closed" in text
    if scheme in ("rediss", "amqps") and (silent or broken or "ssl" in text or "tls" in text):
        return f"it seems to speak no TLS at this port: write {scheme[:-1]}://, or name its port for TLS"
    if broken:
        return f"it closes the connection unasked: if it speaks TLS at this port, write {scheme}s://"
    return _SILENT if silent else "is it running?"


def _messages(error: BaseException | None) -> Iterator[str]:
    """Yield the first line of an error and of those that it comes from."""
    while error is not None:
        yield next(iter(str(error).strip().strip("'").splitlines()), "")
        error = error.__cause__ or error.__context__
