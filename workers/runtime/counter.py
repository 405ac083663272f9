"""How far a unit is: told by Spark's tasks through files in scratch, added up by the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

_PIECES: Final = "pieces-done"
_ROWS: Final = "rows-read"


def count(scratch: Path, file: int, name: str = _PIECES) -> None:
    """In a Spark task: a piece of a data file is done."""
    _append(scratch / name, np.int32(file).tobytes())


def counted(scratch: Path, pieces: Mapping[int, int], name: str = _PIECES) -> int:
    """In the driver: the number of data files of which all pieces are done."""
    try:
        done = np.bincount(np.fromfile(scratch / name, dtype=np.int32))
    except FileNotFoundError:
        return 0
    return sum(1 for file, expected in pieces.items() if file < done.size and done[file] >= expected)


def tally(scratch: Path, read: int, live: int) -> None:
    """In a Spark task: so many rows were read, and so many of them are live."""
    _append(scratch / _ROWS, np.array([read, live], np.int64).tobytes())


def tallied(scratch: Path) -> tuple[int, int]:
    """In the driver: all rows that were read, and those of them that are live."""
    try:
        read, live = np.fromfile(scratch / _ROWS, dtype=np.int64).reshape(-1, 2).sum(axis=0)
    except FileNotFoundError:
        return 0, 0
    return int(read), int(live)


def _append(path: Path, record: bytes) -> None:
    """A short append is atomic, whoever else does it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)
