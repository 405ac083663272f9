"""The progress of a unit: Spark's tasks append records to files in scratch, and the driver adds them up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

_SPLITS: Final = "splits-done"
_ROWS: Final = "rows-read"


def record_split(scratch: Path, file: int, name: str = _SPLITS) -> None:
    """In a Spark task: record that a split of a data file is done."""
    _append(scratch / name, np.int32(file).tobytes())


def files_done(scratch: Path, splits: Mapping[int, int], name: str = _SPLITS) -> int:
    """In the driver: return the number of data files of which all splits are done."""
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


def _append(path: Path, record: bytes) -> None:
    """Append a short record, which is atomic among processes that append."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(descriptor, record)
    finally:
        os.close(descriptor)
