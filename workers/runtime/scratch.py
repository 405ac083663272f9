"""Scratch space: one folder for each attempt, and the progress that Spark's tasks record there.

The folder is deleted after the attempt; the next attempt deletes the folders of dead processes.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import psutil

_PREFIX: Final = "icefleet-scratch-"
#: Before a start that is counted from the machine's, which no setting of the clock changes.
_TICKS: Final = "t"
#: The start of a process by the clock, as other systems than Linux tell it, may move when the clock is set.
_CLOCK_SECONDS: Final = 60

#: What splits are counted under by default: those whose keys were read.
SPLITS: Final = "splits-done"
_ROWS: Final = "rows-read"


@contextmanager
def scratch(root: Path | None = None) -> Iterator[Path]:
    """Provide a folder of this process (:func:`process_folder`) for the block."""
    folder = process_folder(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def process_folder(root: Path | None = None) -> Path:
    """Return a new folder below ``root`` (the system's temporary directory by default).

    If this process dies, the next caller deletes it. Raises OSError, which names the setting, if ``root`` cannot be
    written to.
    """
    root = root or Path(tempfile.gettempdir())
    owner = "@".join((platform.node(), str(os.getpid()), _start(os.getpid())))
    try:
        root.mkdir(parents=True, exist_ok=True)
        _sweep(root)
        return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{owner}@", dir=root))
    except OSError as error:
        advice = "have ICEFLEET_SCRATCH_DIR name another folder"
        raise OSError(error.errno, f"No scratch folder can be made in {root} ({error.strerror}): {advice}") from error


def check_scratch(scratch: Path) -> None:
    """In a task: raise RuntimeError if the attempt has ended, since nothing would delete what is still written."""
    if not scratch.is_dir():
        raise RuntimeError("the attempt that this task belongs to has ended")


def record_split(scratch: Path, file: int, name: str = SPLITS) -> None:
    """In a Spark task: record that a split of a data file is done."""
    _append(scratch / name, np.int32(file).tobytes())


def files_done(scratch: Path, splits: Mapping[int, int], name: str = SPLITS) -> int:
    """In the driver: return how many data files are done; ``splits`` has the number of splits of each."""
    try:
        done = np.bincount(np.fromfile(scratch / name, dtype=np.int32))
    except FileNotFoundError:
        return 0
    return sum(1 for file, expected in splits.items() if file < done.size and done[file] >= expected)


def record_rows(scratch: Path, read: int, live: int) -> None:
    """In a Spark task: record how many rows were read, and how many of them are live."""
    _append(scratch / _ROWS, np.array([read, live], np.int64).tobytes())


def total_rows(scratch: Path) -> tuple[int, int]:
    """In the driver: return how many rows were read, and how many of them are live."""
    try:
        read, live = np.fromfile(scratch / _ROWS, dtype=np.int64).reshape(-1, 2).sum(axis=0)
    except FileNotFoundError:
        return 0, 0
    return int(read), int(live)


def _sweep(root: Path) -> None:
    """Remove folders of this host's dead processes; a folder on shared storage may be another host's."""
    for folder in root.glob(f"{_PREFIX}*@*@*"):
        host, pid, started, *_ = folder.name.removeprefix(_PREFIX).split("@")
        is_ours = host == platform.node() and pid.isdigit() and started.removeprefix(_TICKS).isdigit()
        if is_ours and not _is_alive(int(pid), started):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int, started: str) -> bool:
    """Return whether it is still that process: process ids are reused, in containers at every start."""
    try:
        if started.startswith(_TICKS):
            return _start(pid) == started
        return bool(abs(psutil.Process(pid).create_time() - int(started)) < _CLOCK_SECONDS)
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except (psutil.Error, OSError):
        return True


def _start(pid: int) -> str:
    """Return when a process started: in clock ticks since the machine's start, or in seconds where Linux is not."""
    if not psutil.LINUX:
        return str(int(psutil.Process(pid).create_time()))
    status = Path(f"/proc/{pid}/stat").read_text()
    return _TICKS + status.rpartition(")")[2].split()[19]


def _append(path: Path, record: bytes) -> None:
    """Append a short record, which is atomic among processes that append."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)
