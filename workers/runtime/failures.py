"""How an error gets out of Spark's Python workers: through a file in scratch, since Spark keeps only its text."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from workers.runtime.errors import CorruptFile, DataError, TaskFailed, UnsupportedFile

_FILE: Final = "task-error.json"
_KINDS: Final[dict[str, type[DataError]]] = {kind.__name__: kind for kind in (CorruptFile, UnsupportedFile)}


@contextmanager
def told(scratch: Path) -> Iterator[None]:
    """In a Spark task: leave a note of the error that ends the block. What the data is to blame for goes first."""
    try:
        yield
    except DataError as error:
        _note(scratch, {"kind": type(error).__name__, "path": error.path, "reason": error.reason}, overwrite=True)
        raise
    except Exception as error:
        _note(scratch, {"kind": "", "reason": _reason(error, scratch)}, overwrite=False)
        raise


@contextmanager
def heard(scratch: Path) -> Iterator[None]:
    """In the driver: raise the error that a task has left a note of, instead of Spark's report of it."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        try:
            note = json.loads((scratch / _FILE).read_text())
        except FileNotFoundError:
            note = None
        if note is None and _is_full(error):
            raise TaskFailed(_reason(error, scratch)) from error
        if note is None:
            raise
        if kind := _KINDS.get(note["kind"]):
            raise kind(note["path"], note["reason"]) from error
        raise TaskFailed(note["reason"]) from error


def _reason(error: Exception, scratch: Path) -> str:
    """What went wrong; of a full disk also where to look."""
    said = f"{type(error).__name__}: {error}"
    if not _is_full(error) or not scratch.is_dir():
        return said
    free = shutil.disk_usage(scratch).free >> 20
    advice = "give ICEFLEET_SCRATCH_DIR a larger disk, or plan smaller units with ICEFLEET_UNIT_MB"
    return f"{said}; scratch has {free:,} MB left in {scratch}: {advice}"


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _note(scratch: Path, note: dict[str, str], *, overwrite: bool) -> None:
    if not scratch.is_dir() or (not overwrite and (scratch / _FILE).exists()):
        return
    own = scratch / f"{_FILE}.{os.getpid()}"
    own.write_text(json.dumps(note))
    own.replace(scratch / _FILE)
