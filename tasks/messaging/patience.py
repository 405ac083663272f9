"""How long a message is tried again: what may pass is waited for, anything else ends the job after a few tries.

Nothing is tried again for ever. A storage, a catalog or a Redis that is away comes back by itself, so a job waits for
it for ``ICEFLEET_GIVE_UP_HOURS``. Every other error, whatever its kind, is taken for one that stays: a job or a unit
that meets it ``ICEFLEET_MAX_ATTEMPTS`` times ends with it as its reason.
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

#: The header in which a message tells its next delivery since when, and how often, it went wrong.
HEADER: Final = "icefleet-failing"

#: What is away for a while, or does not let this process in for now.
_AWAY: Final = frozenset({Reason.NO_ANSWER, Reason.DENIED, Reason.BROKER, Reason.UNKNOWN_CATALOG})
#: OSError is what storages raise, and requests of HTTP.
_PASSING: Final = (
    OSError,
    RedisError,
    OperationalError,
    RESTError,
    CommitFailedException,
    CommitStateUnknownException,
)
#: The same of clients that need not be installed, by module and name.
_PASSING_ELSEWHERE: Final = frozenset(
    {
        ("sqlalchemy.exc", "OperationalError"),
        ("sqlalchemy.exc", "TimeoutError"),
        ("botocore.exceptions", "BotoCoreError"),
        ("botocore.exceptions", "ClientError"),
        ("thrift.transport.TTransport", "TTransportException"),
        ("google.api_core.exceptions", "GoogleAPIError"),
    }
)


class TryAgain(Exception):
    """An attempt failed for a reason that may pass; another one is allowed."""


def may_pass(error: BaseException) -> bool:
    """Whether an error may pass without anybody doing anything about the job."""
    if isinstance(error, Refused):
        return error.reason in _AWAY
    if isinstance(error, IcefleetError):
        return False
    if isinstance(error, (*_PASSING, TryAgain)):
        return True
    return any((kind.__module__, kind.__name__) in _PASSING_ELSEWHERE for kind in type(error).__mro__)


class Failing(BaseModel):
    """How a message has fared in its deliveries so far."""

    model_config = ConfigDict(strict=True, frozen=True)

    #: Seconds since the epoch at which it first went wrong.
    since: float = Field(allow_inf_nan=False)
    #: How often it met an error that does not pass.
    wrong: int = Field(0, ge=0)

    @classmethod
    def after(cls, headers: Mapping[str, Any], error: BaseException, now: float) -> Failing:
        """With one more failure than the headers of a message tell of."""
        try:
            before = cls.model_validate(headers.get(HEADER))
        except ValidationError:  # there is none, or somebody else wrote it
            before = cls(since=now)
        return cls(since=min(before.since, now), wrong=before.wrong + (not may_pass(error)))


@dataclass(frozen=True)
class Patience:
    """When it is over."""

    #: Tries at what goes wrong.
    attempts: int
    #: For what may pass.
    seconds: float

    @classmethod
    def of(cls, settings: Settings) -> Patience:
        """As the settings ask for it."""
        return cls(settings.max_attempts, settings.give_up_hours * 3600.0)

    def ends(self, failing: Failing, now: float) -> bool:
        """Whether a message is not to be tried again."""
        return failing.wrong >= self.attempts or now - failing.since >= self.seconds
