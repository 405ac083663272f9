"""How long a message is tried again, and the reason that a person reads.

A storage, a catalog or a Redis that is away comes back by itself: a job waits for it for ``ICEFLEET_GIVE_UP_HOURS``.
Every other error is taken for a permanent one: a job or a unit that meets errors ``ICEFLEET_MAX_ATTEMPTS`` times ends
with the last one as its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kombu.exceptions import OperationalError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, RESTError
from redis.exceptions import RedisError

from producer.common.errors import IcefleetError, Reason, Refused
from producer.common.settings import Settings
from producer.iceberg.catalog import storage_hint
from producer.storage.errors import StorageBusy, StorageError
from workers.runtime.errors import TaskFailed, cause_of

#: The header that carries a message's failures from one delivery to the next.
HEADER: Final = "icefleet-failing"

#: Refusals by a service that is away for a while, or denies access for now.
_TRANSIENT_REASONS: Final = frozenset({Reason.NO_ANSWER, Reason.DENIED, Reason.BROKER, Reason.UNKNOWN_CATALOG})
#: Storages and HTTP clients raise OSError.
_TRANSIENT: Final = (
    OSError,
    RedisError,
    OperationalError,
    RESTError,
    CommitFailedException,
    CommitStateUnknownException,
)
#: The same of clients that need not be installed, by module and name.
_TRANSIENT_BY_NAME: Final = frozenset(
    {
        ("sqlalchemy.exc", "OperationalError"),
        ("sqlalchemy.exc", "TimeoutError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("thrift.transport.TTransport", "TTransportException"),
        ("google.api_core.exceptions", "GoogleAPIError"),
    }
)


#: The advice if memory has run out, and signs that it has: in the JVM or at its start, in Python or in Arrow, or
#: because the kernel killed a Python process of Spark's.
MEMORY_ADVICE: Final = "give workers more memory, or make units smaller (ICEFLEET_UNIT_MB)"
_OUT_OF_MEMORY: Final = (
    "MemoryError",
    "Cannot allocate memory",
    "insufficient memory",
    "Could not reserve enough space",
    "Python worker exited unexpectedly",
)


class TryAgain(Exception):
    """An attempt failed for a reason that may pass; another one is allowed."""


def reason_of(error: BaseException) -> str:
    """Return why an attempt failed, in one line, with advice if memory ran out or no storage answers."""
    if isinstance(error, IcefleetError | TryAgain):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    if any(sign in text for sign in _OUT_OF_MEMORY):
        return f"memory ran out: {MEMORY_ADVICE}"
    return (str(error) if isinstance(error, TaskFailed | StorageError) else cause_of(error)) + storage_hint(error)


def is_transient(error: BaseException) -> bool:
    """Return whether an error may pass by itself."""
    if isinstance(error, Refused):
        return error.reason in _TRANSIENT_REASONS
    if isinstance(error, IcefleetError):
        return False
    if isinstance(error, (*_TRANSIENT, TryAgain)):
        return True
    return any((kind.__module__, kind.__name__) in _TRANSIENT_BY_NAME for kind in type(error).__mro__)


def is_storage_busy(error: BaseException) -> bool:
    """Return whether an object store was busy or away for longer than requests are repeated."""
    return isinstance(error, StorageBusy) or (isinstance(error, TaskFailed) and error.kind == StorageBusy.__name__)


class FailureCount(BaseModel):
    """The failures of a message so far."""

    model_config = ConfigDict(strict=True, frozen=True)

    #: Seconds since the epoch at the first failure.
    since: float = Field(allow_inf_nan=False)
    #: How often it met an error that is not transient.
    wrong: int = Field(0, ge=0)

    @classmethod
    def after(cls, headers: Mapping[str, Any], error: BaseException, now: float) -> FailureCount:
        """Return the count in a message's headers plus one more failure."""
        try:
            before = cls.model_validate(headers.get(HEADER))
        except ValidationError:  # there is none, or another program wrote it
            before = cls(since=now)
        return cls(since=min(before.since, now), wrong=before.wrong + (not is_transient(error)))


@dataclass(frozen=True)
class RetryPolicy:
    """When a message is not tried again."""

    #: The attempts after which an error that is not transient is final.
    max_attempts: int
    #: The seconds after which any error is final.
    max_seconds: float

    @classmethod
    def of(cls, settings: Settings) -> RetryPolicy:
        """Return the policy that the settings ask for."""
        return cls(settings.max_attempts, settings.give_up_hours * 3600.0)

    def is_exhausted(self, failures: FailureCount, now: float) -> bool:
        """Return whether a message must not be tried again."""
        return failures.wrong >= self.max_attempts or now - failures.since >= self.max_seconds
