"""Errors of a unit: those that the data causes, and how an error leaves Spark's Python workers.

Spark keeps only the text of a task's error. So a task records its error in a file in scratch, and the driver raises it
again.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final


class DataError(Exception):
    """A file that cannot be used: its path, and the reason in one sentence. Trying again does not help."""

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
    """A Spark task failed for a reason that may pass, such as storage that did not answer.

    ``kind`` is the name of the class of the error, if that is known.
    """

    def __init__(self, reason: str, kind: str = "") -> None:
        super().__init__(reason)
        self.kind = kind


class Stopped(Exception):
    """The work on the unit was cancelled."""


_ERROR_FILE: Final = "task-error.json"
#: The line that ends a Python traceback, and those of a JVM's error that say what was raised; the last is the cause.
_PYTHON_CAUSE: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")
_JAVA_CAUSE: Final = re.compile(r"^(?:Caused by)?: (.+)", re.MULTILINE)
#: What Python, Arrow and the JVM say if a disk is full or a quota used up.
_DISK_FULL: Final = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
_DATA_ERRORS: Final[dict[str, type[DataError]]] = {kind.__name__: kind for kind in (CorruptFile, UnsupportedFile)}


@contextmanager
def record_task_error(scratch: Path) -> Iterator[None]:
    """In a Spark task: record the error that ends the block. An error of the data replaces any other."""
    try:
        yield
    except DataError as error:
        _record(scratch, {"kind": type(error).__name__, "path": error.path, "reason": error.reason}, overwrite=True)
        raise
    except Exception as error:
        _record(scratch, {"kind": type(error).__name__, "reason": _reason(error, scratch)}, overwrite=False)
        raise


@contextmanager
def reraise_task_error(scratch: Path) -> Iterator[None]:
    """In the driver: raise the error that a task recorded, instead of Spark's report of it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        file = scratch / _ERROR_FILE
        record = json.loads(file.read_text()) if file.exists() else None
        if record is None and _is_disk_full(error):  # so full that not even the record could be written
            raise TaskFailed(_reason(error, scratch)) from error
        if record is None:
            raise
        if kind := _DATA_ERRORS.get(record["kind"]):
            raise kind(record["path"], record["reason"]) from error
        raise TaskFailed(record["reason"], record["kind"]) from error


@contextmanager
def name_file(path: str) -> Iterator[None]:
    """Have a system error that ends the block name the file of the table that is written: Arrow's errors do not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise


def cause_of(error: BaseException) -> str:
    """Return the line of an error that says the cause; in Spark's errors, that of the Python worker or of the JVM."""
    text = str(error).strip()
    if found := _PYTHON_CAUSE.findall(text) or _JAVA_CAUSE.findall(text):
        return str(found[-1])
    return ": ".join((type(error).__name__, *text.splitlines()[:1]))


def _reason(error: Exception, scratch: Path) -> str:
    """Return what went wrong; of a full disk also which one it is, and what to do."""
    cause = cause_of(error)
    if not _is_disk_full(error) or not scratch.is_dir():
        return cause
    if (path := getattr(error, "filename", None)) and not str(path).startswith(str(scratch)):
        return f"{cause}: the disk of this file is full, free some space there"
    free = shutil.disk_usage(scratch).free >> 20
    advice = "give ICEFLEET_SCRATCH_DIR a larger disk, or plan smaller units with ICEFLEET_UNIT_MB"
    return f"{cause}; scratch has {free:,} MB left in {scratch}: {advice}"


def _is_disk_full(error: Exception) -> bool:
    return any(sign in str(error) for sign in _DISK_FULL)


def _record(scratch: Path, record: dict[str, str], *, overwrite: bool) -> None:
    if not scratch.is_dir() or (not overwrite and (scratch / _ERROR_FILE).exists()):
        return
    own = scratch / f"{_ERROR_FILE}.{os.getpid()}"
    with suppress(OSError):  # scratch is full: the error that led here goes on to Spark
        own.write_text(json.dumps(record))
        own.replace(scratch / _ERROR_FILE)
