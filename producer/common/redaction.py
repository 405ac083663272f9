"""Redaction of secrets: a text on its way to a log, a report or a broker passes :func:`redact`.

Clients of catalogs and storage put passwords, signed links and whole sets of properties into the texts of errors.
Secrets are known from PyIceberg's configuration, from what catalogs vend with their tables, and from the broker's
address; others are recognised by the words before them.
"""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

_MASK: Final = "***"
#: Shorter values are words that sentences are made of.
_SHORTEST: Final = 6

#: Names of properties whose values are secrets, and the ends of names of properties about one.
_SECRET: Final = re.compile(
    r"secret|token|passw|credential|access-key|account-key|api-key|private-key|sas|connection-string|authorization"
)
_HARMLESS: Final = re.compile(r"(enabled|uri|url|endpoint|type|provider|expires-at|ms|seconds|refresh)$")

#: User and password in an address. A name alone may be an Azure container: it stays.
_LOGIN: Final = re.compile(r"(?<=://)[^\s/?#@:'\"]*:[^\s/?#@'\"]*(?=@)")
_PASSWORD: Final = re.compile(r"://[^\s/?#@:'\"]*:([^\s/?#@'\"]+)@")
#: Any value after these words is a secret.
_NAMED: Final = re.compile(
    r"""(
      [?&;](?:X-Amz-(?:Signature|Credential|Security-Token)|X-Goog-(?:Signature|Credential)|AWSAccessKeyId
             |GoogleAccessId|Signature|sig|access_token|token|password|client_secret)=
    | (?:secret[-_.]?access[-_.]?key|session[-_.]?token|security[-_.]?token|client[-_.]?secret|sas[-_.]?token
        |account[-_.]?key|passw(?:or)?d)['"]?\s*[:=]\s*['"]?
    | authorization['"]?\s*[:=]\s*['"]?(?:(?:basic|bearer)\s+)?
    | \bbearer\s+(?=\S{8})
    )[^\s'"<>&,;)}]+""",
    re.IGNORECASE | re.VERBOSE,
)

_registered: set[str] = set()


def register_secrets(properties: Mapping[str, Any]) -> None:
    """Register the secrets among properties, such as credentials that a catalog vends with a table."""
    if not _registered.issuperset(found := set(_secrets(properties))):
        _registered.update(found)
        _known_secrets.cache_clear()


def register_address(url: str) -> None:
    """Register the password in an address, even if it should have been percent-encoded."""
    login = url.partition("://")[2].rpartition("@")[0]
    register_secrets({"uri": url, "password": login.partition(":")[2]})


def redact(text: str) -> str:
    """Return a text without the secrets that this process knows and without what looks like one."""
    if secrets := _known_secrets():
        text = secrets.sub(_MASK, text)
    return _NAMED.sub(rf"\g<1>{_MASK}", _LOGIN.sub(_MASK, text))


class RedactedRecord(logging.LogRecord):
    """A redacted log record; its traceback is formatted here, since handlers would format the error again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = redact("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:  # noqa: N802
        """Return the message with its arguments."""
        return redact(super().getMessage())


def redact_logs() -> None:
    """Redact all that this process logs, by any logger and to any handler."""
    logging.setLogRecordFactory(RedactedRecord)


@lru_cache(maxsize=1)
def _known_secrets() -> re.Pattern[str] | None:
    """Return a pattern of all known secrets, the longest first: one may be part of another."""
    found = sorted(_registered.union(_configured()), key=len, reverse=True)
    return re.compile("|".join(re.escape(value) for value in found)) if found else None


def _configured() -> Iterator[str]:
    try:
        from pyiceberg.utils.config import Config  # applications that only enqueue do not need it

        catalogs = Config().config.get("catalog")
    except Exception:  # opening a catalog raises what is wrong with the file
        return
    if isinstance(catalogs, Mapping):
        yield from _secrets(catalogs)


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str):
            found = _property_secrets(name.lower().replace("_", "-"), value)
            yield from (secret for secret in found if len(secret) >= _SHORTEST)


def _property_secrets(name: str, value: str) -> Iterator[str]:
    """Yield the secrets in the value of one property, encoded and not."""
    for password in _PASSWORD.findall(value):
        yield from (password, unquote(password))
    if _SECRET.search(name) and not _HARMLESS.search(name):
        yield value
        if "credential" in name:  # name:secret
            yield value.partition(":")[2]
