"""The errors of Icefleet, told apart by what the caller does next.

Each carries one sentence that a person reads and that says what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from producer.common.redaction import masked


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
    FILE_FORMAT = "file format"
    KEY_TYPE = "key type"
    COLUMN_TYPE = "column type"
    ENCRYPTED = "encrypted file"
    MESSAGE = "message"
    UNMODELLED = "unknown metadata"


class IcefleetError(Exception):
    """Whatever Icefleet raises on purpose; the text is one sentence for a person."""

    #: What the command line exits with.
    exit_status: ClassVar[int] = 1

    def __init__(self, *args: object) -> None:
        super().__init__(*(masked(arg) if type(arg) is str else arg for arg in args))


class Refused(IcefleetError):
    """What is asked cannot be done as it stands: change the request or the configuration. Nothing was written."""

    exit_status = 2

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(reason, sentence)  # both, so that a pool of processes can hand it on
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[1])


class Corrupt(IcefleetError):
    """A file of the table, or a record of a job, is wrong; the text names it. Trying again does not help."""


class Newer(IcefleetError):
    """A later version of Icefleet wrote it: sound, and for a process of that version to work on."""

    def __init__(self, what: str, version: int, known: int) -> None:
        super().__init__(what, version, known)

    def __str__(self) -> str:
        what, version, known = self.args
        return f"{what} asks for schema {version} and this process knows {known}: upgrade it."


class Conflict(IcefleetError):
    """The table changed so that the plan no longer fits: plan again."""


class Failed(IcefleetError):
    """Gave up after the attempts that the settings allow."""


class OutsideTable(Failed):
    """A message or a record leads out of the table that its job is about: nothing there is touched."""
