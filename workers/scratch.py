"""Scratch space: one folder for each attempt, gone when it is over; leftovers of dead processes go with the next."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

_PREFIX = "icefleet-scratch-"


@contextmanager
def scratch(root: Path | None = None) -> Iterator[Path]:
    """A folder of this process below ``root`` (the system's temporary directory by default)."""
    parent = root or Path(tempfile.gettempdir())
    parent.mkdir(parents=True, exist_ok=True)
    _sweep(parent)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        pid = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
