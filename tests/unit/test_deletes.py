"""Which deletes are held in memory, and which are shuffled."""

from __future__ import annotations

import pytest
from pyiceberg.types import LongType, PrimitiveType, StringType

from workers.deletes import fits
from workers.unit import KeyColumn, KeyFile, Match

MB = 1 << 20


def match(type_: PrimitiveType, rows: int, size: int, files: int = 1) -> Match:
    deletes = tuple(KeyFile(n, f"{n}", 1, 0, rows // files, size // files) for n in range(files))
    return Match((KeyColumn(1, type_),), True, deletes, ())


@pytest.mark.parametrize(
    ("type_", "rows", "size", "expected"),
    [
        (LongType(), 1_000, 10_000, True),
        (LongType(), 10_000_000, 10_000, False),  # many, however well they are compressed
        (StringType(), 100_000, MB, True),
        (StringType(), 1_000, 100 * MB, False),  # few, and long
    ],
)
@pytest.mark.parametrize("files", [1, 10])
def test_deletes_fit_by_number_and_by_size(
    type_: PrimitiveType, rows: int, size: int, expected: bool, files: int
) -> None:
    assert fits(match(type_, rows, size, files), 32 * MB) is expected
