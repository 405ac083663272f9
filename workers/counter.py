"""How many of a unit's data files are done: told by Spark's tasks through a file in scratch, added up by the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

_FILE: Final = "pieces-done"


def count(scratch: Path, file: int) -> None:
    """In a Spark task: a piece of a data file is done. A short append is atomic, whoever else does it."""
    descriptor = os.open(scratch / _FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, np.int32(file).tobytes())
    finally:
        os.close(descriptor)


def counted(scratch: Path, pieces: Mapping[int, int]) -> int:
    """In the driver: the number of data files of which all pieces are done, of all matches."""
    try:
        done = np.bincount(np.fromfile(scratch / _FILE, dtype=np.int32))
    except FileNotFoundError:
        return 0
    return sum(1 for file, expected in pieces.items() if file < done.size and done[file] >= expected)
