"""How a typed error gets out of Spark's Python workers: through a file in scratch, since Spark keeps only its text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.errors import CorruptFile, DataError, UnsupportedFile

_FILE = "data-error.json"
_KINDS: dict[str, type[DataError]] = {kind.__name__: kind for kind in (CorruptFile, UnsupportedFile)}


@contextmanager
def told(scratch: Path) -> Iterator[None]:
    """In a Spark task: leave a note of the data error that ends the block."""
    try:
        yield
    except DataError as error:
        note = {"kind": type(error).__name__, "path": error.path, "reason": error.reason}
        (scratch / _FILE).write_text(json.dumps(note))
        raise


@contextmanager
def heard(scratch: Path) -> Iterator[None]:
    """In the driver: raise the error that a task has left a note of, instead of Spark's."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        try:
            note = json.loads((scratch / _FILE).read_text())
        except FileNotFoundError:
            raise error from None
        raise _KINDS[note["kind"]](note["path"], note["reason"]) from error
