"""Scratch space: one folder for each attempt, deleted after it; the next one deletes the folders of dead processes."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

_PREFIX: Final = "icefleet-scratch-"
#: The start of a process is computed from the clock, which may be set meanwhile.
_CLOCK_SECONDS: Final = 60


@contextmanager
def scratch(root: Path | None = None) -> Iterator[Path]:
    """Provide a folder of this process below ``root`` (the system's temporary directory by default)."""
    folder = folder_of_this_process(root or Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def folder_of_this_process(root: Path) -> Path:
    """Return a new folder; if this process dies, the next caller deletes it.

    Raises:
        OSError: ``root`` cannot be written to.
    """
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    owner = "@".join((platform.node(), str(os.getpid()), str(int(psutil.Process().create_time()))))
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}@", dir=root))


def _sweep(root: Path) -> None:
    """Remove folders of this host's dead processes; a folder on shared storage may be another host's."""
    for folder in root.glob(f"{_PREFIX}*"):
        host, _, owner = folder.name.removeprefix(_PREFIX).partition("@")
        pid, _, rest = owner.partition("@")
        started, _, _ = rest.partition("@")
        if host == platform.node() and pid.isdigit() and started.isdigit() and not _is_alive(int(pid), int(started)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int, started: int) -> bool:
    """Return whether it is still that process: process ids are reused, in containers at every start."""
    try:
        return bool(abs(psutil.Process(pid).create_time() - started) < _CLOCK_SECONDS)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
