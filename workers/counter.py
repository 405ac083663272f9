"""How many of a unit's data files are done, counted by Spark's tasks and read by the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_FILE = "files-done"
_INTERVAL = 0.5


def count(scratch: Path) -> None:
    """In a Spark task: one more is done. Appending a byte is atomic, whoever else does it."""
    descriptor = os.open(scratch / _FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, b".")
    finally:
        os.close(descriptor)


@contextmanager
def reported(scratch: Path, files: int, progress: Callable[[int, int], None] | None) -> Iterator[None]:
    """In the driver: call ``progress(done, files)`` whenever the count has changed, about twice a second."""
    if progress is None:
        yield
        return
    stop = threading.Event()

    def watch() -> None:
        last = -1
        while not stop.wait(_INTERVAL):
            last = _tell(scratch, files, progress, last)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    progress(0, files)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    progress(files, files)


def _tell(scratch: Path, files: int, progress: Callable[[int, int], None], last: int) -> int:
    path = scratch / _FILE
    done = min(path.stat().st_size, files) if path.exists() else 0
    if done != last:
        progress(done, files)
    return done
