"""Errors that the data itself causes; a caller reports them and never tries again."""

from __future__ import annotations


class DataError(Exception):
    """A file that cannot be used: its path, and the reason in one sentence."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class CorruptFile(DataError):
    """A file that is missing, truncated, or contradicts its own metadata."""


class UnsupportedFile(DataError):
    """A sound file with a shape that the engine does not read (yet)."""


class TaskFailed(Exception):
    """A Spark task failed for a reason that may pass, such as storage that did not answer."""


class Stopped(Exception):
    """The conversion was told to stop."""
