"""Secrets stay out of what people read: a text on its way to a log, a report or a broker passes :func:`masked`.

Catalogs and storage put what they were given into the texts of their errors: addresses with passwords, signed links,
whole sets of properties. What is a secret is known from PyIceberg's configuration, from what catalogs hand out with
their tables, and from the broker's address; a secret that nobody has named is known by the words around it.
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

#: Names of properties whose values are secrets, and the ends of names that only talk about one.
_SECRET: Final = re.compile(
    r"secret|token|passw|credential|access-key|account-key|api-key|private-key|sas|connection-string|authorization"
)
_HARMLESS: Final = re.compile(r"(enabled|uri|url|endpoint|type|provider|expires-at|ms|seconds|refresh)$")

#: What is left of an address when its password is taken out. A name alone may be an Azure container: it stays.
_LOGIN: Final = re.compile(r"(?<=://)[^\s/?#@:'\"]*:[^\s/?#@'\"]*(?=@)")
_PASSWORD: Final = re.compile(r"://[^\s/?#@:'\"]*:([^\s/?#@'\"]+)@")
#: What stands behind these words is a secret, whoever has made it.
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

_learned: set[str] = set()


def learn(properties: Mapping[str, Any]) -> None:
    """Take note of the secrets among properties, such as credentials that a catalog hands out with a table."""
    if not _learned.issuperset(found := set(_secrets(properties))):
        _learned.update(found)
        _values.cache_clear()


def learn_address(url: str) -> None:
    """Take note of the password in an address, also of one that should have been percent-encoded."""
    login = url.partition("://")[2].rpartition("@")[0]
    learn({"uri": url, "password": login.partition(":")[2]})


def masked(text: str) -> str:
    """A text without the secrets that this process knows, and without what looks like one."""
    if values := _values():
        text = values.sub(_MASK, text)
    return _NAMED.sub(rf"\g<1>{_MASK}", _LOGIN.sub(_MASK, text))


class MaskedRecord(logging.LogRecord):
    """A line of a log; its traceback is made here, since whatever writes it would make it from the error again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            self.exc_text = masked("".join(traceback.format_exception(*self.exc_info)).rstrip())

    def getMessage(self) -> str:  # noqa: N802
        """The message with its arguments."""
        return masked(super().getMessage())


def mask_logs() -> None:
    """Mask all that this process logs, by whatever logger and to whatever handler."""
    logging.setLogRecordFactory(MaskedRecord)


@lru_cache(maxsize=1)
def _values() -> re.Pattern[str] | None:
    """All secrets that are known, the longest first: one may be part of another."""
    found = sorted(_learned.union(_configured()), key=len, reverse=True)
    return re.compile("|".join(re.escape(value) for value in found)) if found else None


def _configured() -> Iterator[str]:
    try:
        from pyiceberg.utils.config import Config  # whoever only enqueues does not wait for it

        catalogs = Config().config.get("catalog")
    except Exception:  # whoever opens a catalog says what is wrong with the file
        return
    if isinstance(catalogs, Mapping):
        yield from _secrets(catalogs)


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(value)
        elif isinstance(value, str):
            for secret in _of(name.lower().replace("_", "-"), value):
                if len(secret) >= _SHORTEST:
                    yield secret


def _of(name: str, value: str) -> Iterator[str]:
    """The secrets in the value of one property, in each form that they come in."""
    for password in _PASSWORD.findall(value):
        yield from (password, unquote(password))
    if _SECRET.search(name) and not _HARMLESS.search(name):
        yield value
        if "credential" in name:  # name:secret
            yield value.partition(":")[2]
