"""The errors of Icefleet, one class for each thing that the caller may do next.

Each carries one sentence for a person that says what to do.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import ClassVar

from producer.common.redaction import redact


class Reason(StrEnum):
    """Why a request or a unit is refused."""

    USAGE = "usage"
    CONFIGURATION = "configuration"
    UNKNOWN_CATALOG = "unknown catalog"
    NO_ANSWER = "no answer"
    UNKNOWN_TABLE = "unknown table"
    DENIED = "access denied"
    UNKNOWN_BRANCH = "unknown branch"
    UNKNOWN_JOB = "unknown job"
    FORMAT_VERSION = "format version"
    WHERE = "where"
    BROKER = "broker"
    COLUMN_TYPE = "column type"
    MESSAGE = "message"
    UNMODELLED = "unknown metadata"


class IcefleetError(Exception):
    """The base of all errors that Icefleet raises on purpose."""

    #: The exit status of the command line.
    exit_status: ClassVar[int] = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(redact(arg) if type(arg) is str else arg for arg in args))


class Refused(IcefleetError):
    """The request cannot be fulfilled as it is: change it or the configuration. Nothing was written."""

    exit_status = 2

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)  # both, so that it can be pickled
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


class Corrupt(IcefleetError):
    """A file of the table or a record of a job is corrupt; the text names it. Trying again does not help."""


class Newer(IcefleetError):
    """A later version of Icefleet wrote this record or message: leave it to a process of that version."""


class Conflict(IcefleetError):
    """The table changed, and the plan does not fit it any more: plan again."""


class Failed(IcefleetError):
    """All attempts that the settings allow have failed."""


class OutsideTable(Failed):
    """A message or a record names a path outside of its table: nothing is read, written or deleted there."""


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text without its full stop, or the error's class if it has no text."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")


def suggest(name: str, known: Collection[str]) -> str:
    """Return the end of a sentence about an unknown name: the known name that is most like it, or else the first 20."""
    close = get_close_matches(name, known, n=1)
    return f": did you mean {close[0]!r}?" if close else f"; there are {', '.join(islice(known, 20))}."
