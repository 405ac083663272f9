"""The addresses of broker and Redis: what is wrong with one, and why one does not answer, each with what to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from producer.common.errors import Reason, Refused
from producer.common.redaction import masked

REDIS: Final = ("redis", "rediss")

_EXAMPLE: Final = "redis://localhost:6379/0"

#: Signs in the text of an error, and what they mean; the first that is found counts.
_MEANINGS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
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
    (
        ("refused",),
        "nothing listens there: is it running, at this port and on this address (bind in redis.conf)?",
    ),
    (("no such transport",), f"no broker goes by that scheme: write an address such as {_EXAMPLE}"),
)
_SPEAKS_NO_TLS: Final = "it seems to speak no TLS at this port: write redis://, or name its port for TLS"
_SPEAKS_TLS: Final = "it closes the connection unasked: if it speaks TLS at this port, write rediss://"
_SILENT: Final = "nothing came back in time: does a firewall drop connections, is it the right address?"


def check_address(url: str, *, redis_only: bool = False) -> str:
    """An address as it is, if it is one; the passwords in it are not judged.

    Raises:
        ValueError: it is none; the text says what is missing.
    """
    scheme, separator, rest = url.partition("://")
    if not url:
        return url
    if not separator:
        likely = f"redis://{url}" if url.count(":") == 1 and "/" not in url.split(":")[0] else _EXAMPLE
        raise ValueError(f"has no scheme: write {likely}")
    if redis_only and scheme not in (*REDIS, "unix"):
        raise ValueError(f"is not the address of a Redis: write one such as {_EXAMPLE}")
    if scheme in REDIS:
        _check_redis(url, rest)
    return url


def _check_redis(url: str, rest: str) -> None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises when it is none
    except ValueError:
        encode = "; special characters in a password must be percent-encoded (%23 for #)" if "@" in rest else ""
        raise ValueError(f"has no valid port: write one such as {_EXAMPLE}{encode}") from None
    if (database := parts.path.strip("/")) and not database.isdigit():
        raise ValueError(f"ends with {database!r}, which is not the number of a database: write one such as {_EXAMPLE}")


def unanswered(url: str, error: BaseException, *, what: str = "broker") -> Refused:
    """The refusal for a broker or a Redis that cannot be used, with the likely cause and what to do.

    Args:
        url: Its address.
        error: What its client raised.
        what: What it is to the reader.
    """
    texts = list(dict.fromkeys(_texts(error)))
    detail = next((text for text in texts if text), type(error).__name__)
    return Refused(
        Reason.BROKER, f"The {what} at {masked(url)} does not answer: {_meaning(url, texts)} ({detail.rstrip('.')})."
    )


def _meaning(url: str, texts: list[str]) -> str:
    text = " ".join(texts).lower()
    for signs, meaning in _MEANINGS:
        if any(sign in text for sign in signs):
            return meaning
    secure = url.startswith("rediss://")
    if secure and any(sign in text for sign in ("ssl", "tls", "timeout", "timed out", "reset", "closed")):
        return _SPEAKS_NO_TLS
    if "reset by peer" in text or "closed" in text:
        return _SPEAKS_TLS
    if "timeout" in text or "timed out" in text:
        return _SILENT
    return "is it running?"


def _texts(error: BaseException | None) -> Iterator[str]:
    """The first line of an error and of those that it comes from."""
    while error is not None:
        yield next(iter(str(error).strip().strip("'").splitlines()), "")
        error = error.__cause__ or error.__context__
