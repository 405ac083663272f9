"""Refusals of object stores, and stores that do not answer, as one sentence that says what is wrong and what to do."""

from __future__ import annotations

import errno
import re
from html import unescape
from typing import Final

#: What obstore says of an answer: its status, the store's own code for it, and the store's message.
_STATUS: Final = re.compile(r"status code: (\d{3})|\(code: (\d{3})\)")
_CODE: Final = re.compile(r"<Code>([A-Za-z]\w+)</Code>|\(code: ([A-Za-z]\w+)\)|(container does not exist)")
_MESSAGE: Final = re.compile(r"<Message>([^<\n]*)")
#: The server that a request went to; a name and a password before it are left out.
_SERVER: Final = re.compile(r"Error performing \w+ (https?://)(?:[^/\s@]*@)?([^/\s?]+)")

#: Sentences by the store's code. Those of the first group deny access, whatever the status: AWS answers 400 to some.
_DENIALS: Final = {
    "InvalidAccessKeyId": "it does not know the access key, correct s3.access-key-id",
    "SignatureDoesNotMatch": "the secret does not belong to the access key, correct s3.secret-access-key",
    "ExpiredToken": "the credentials have expired, renew them (s3.session-token) or have the catalog vend them",
    "InvalidToken": "it does not take the session token, renew it (s3.session-token) or leave it out",
    "TokenRefreshRequired": "the credentials have expired, renew them (s3.session-token) or have the catalog vend them",
    "RequestTimeTooSkewed": "this machine's clock differs from the store's, have it follow a time server",
    "AuthenticationFailed": "the account key or token is wrong or has expired, correct adls.account-key, adls.sas-token"
    " or adls.token, and see that this machine's clock is right",
}
_OTHERS: Final = {
    "NoSuchBucket": "there is no such bucket: correct the table's location, or the endpoint of the store",
    "ContainerNotFound": "there is no such container: correct the table's location, or the account",
    "container does not exist": "there is no such container: correct the table's location, or the account",
    "AuthorizationHeaderMalformed": "the region is wrong: correct s3.region",
    "PermanentRedirect": "the bucket is in another region: correct s3.region",
    "IllegalLocationConstraintException": "the bucket is in another region: correct s3.region",
}
#: Sentences by what obstore says where there is no answer that can be read.
_CONNECTIONS: Final = {
    "InvalidCertificate": "the certificate of {} is not trusted: have SSL_CERT_FILE name a file with its authority's",
    "InvalidContentType": "{} does not speak TLS: begin the endpoint with http://, or correct its port",
    "failed to lookup address": "the name of {} is not known: correct the endpoint",
    "incorrectly configured region": "the bucket is in another region: correct s3.region",
    "error sending request": "{} does not answer: check that the storage runs, and the endpoint",
}
#: Those that another attempt may find changed.
_PASSING_CONNECTIONS: Final = ("failed to lookup address", "error sending request")
_PASSING_STATUSES: Final = (408, 425, 429)
#: AWS answers 400 to an upload that it has waited too long for.
_PASSING_CODES: Final = ("RequestTimeout",)
#: What obstore says of a range of an empty object.
_WHOLE_ANSWER: Final = "non-partial response"
#: The right that each kind of request needs.
_RIGHTS: Final = {"GET": "read", "HEAD": "read", "LIST": "list", "DELETE": "delete"}


class StorageError(OSError):
    """A store that refuses a request, or does not answer. Its text is the file and one sentence.

    Attributes:
        empty: Whether a range of the object was asked for, and the object is empty or not as long.
    """

    empty = False

    def __str__(self) -> str:
        return f"{self.filename}: {self.strerror}"


class StorageBusy(StorageError):
    """A store that is busy or away: the same request may succeed later."""


class AccessDenied(StorageError, PermissionError):
    """A store that denies access, or takes no such credentials."""


def storage_error(kind: str, location: str, error: Exception, *, denied: bool = False) -> StorageError:
    """Return the error for what obstore raised at a request of a kind for a file.

    Args:
        denied: Whether obstore says that access is denied; it does not for requests that list or delete.
    """
    text = str(error).strip()
    status, code = _first(_STATUS, text), _first(_CODE, text)
    number = int(status) if status else None
    if denied or number in (401, 403) or code in _DENIALS or code == "AccessDenied" or _is_bare_refusal(kind, number):
        right = _RIGHTS.get(kind, "write")
        why = _DENIALS.get(code, f"grant the right to {right} here, or correct the credentials")
        said = f" ({code or number})" if code or number else ""
        return AccessDenied(errno.EACCES, f"the store denies access{said}: {why}", location)
    empty = number == 416 or _WHOLE_ANSWER in text
    if number is not None:
        passing = number in _PASSING_STATUSES or (number >= 500 and number != 501) or code in _PASSING_CODES
    else:
        sign = next((sign for sign in _CONNECTIONS if sign in text), None)
        passing = code not in _OTHERS and not empty and (sign is None or sign in _PASSING_CONNECTIONS)
    found = (StorageBusy if passing else StorageError)(errno.EIO, _sentence(text, number, code), location)
    found.empty = empty
    return found


def _sentence(text: str, status: int | None, code: str) -> str:
    if code in _OTHERS:
        message = _first(_MESSAGE, text)
        return _OTHERS[code] + (f" ({unescape(message).rstrip('.')})" if code == "AuthorizationHeaderMalformed" else "")
    if status is not None:
        message = unescape(_first(_MESSAGE, text)).rstrip(".")
        return f"the store answers {' '.join(filter(None, (str(status), code)))}{message and f' ({message})'}"
    server = "".join(found.groups()) if (found := _SERVER.search(text)) else "the store"
    for sign, sentence in _CONNECTIONS.items():
        if sign in text:
            return sentence.format(server)
    return text.partition("\n")[0].rstrip(".") or type(text).__name__


def _is_bare_refusal(kind: str, status: int | None) -> bool:
    """Return whether an answer without a reason, which HEAD gets, may be about credentials that have expired."""
    return kind == "HEAD" and status == 400


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next(group for group in found.groups() if group) if found and any(found.groups()) else ""
