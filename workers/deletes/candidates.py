"""Rows that may be deleted, on their way to being looked up: many at a time, of several files where files are small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.deletes.bloom_filter import Hashes
from workers.deletes.key_index import KeyIndex
from workers.model.convert_unit import KeyFile

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Rows of one data file that the filter of keys lets through."""

    file: KeyFile
    #: Ascending.
    positions: Positions
    #: As they are dealt to parts.
    hashes: Hashes
    #: Canonical key columns.
    keys: tuple[pa.Array, ...]

    @property
    def bytes(self) -> int:
        """Of the keys."""
        return sum(int(column.nbytes) for column in self.keys)


def gathered(candidates: Iterable[Candidates], most_rows: int, most_bytes: int) -> Iterator[list[Candidates]]:
    """Lists of candidates that reach one of the two limits; the last may not."""
    waiting: list[Candidates] = []
    rows = size = 0
    for some in candidates:
        waiting.append(some)
        rows += some.positions.size
        size += some.bytes
        if rows >= most_rows or size >= most_bytes:
            yield waiting
            waiting, rows, size = [], 0, 0
    if waiting:
        yield waiting


def removed(index: KeyIndex, several: Sequence[Candidates]) -> Iterator[tuple[int, Positions]]:
    """Positions that the index removes, by the data file's index, in the order of the candidates."""
    counts = [some.positions.size for some in several]
    keys = [pa.concat_arrays(parts) for parts in zip(*(some.keys for some in several), strict=True)]
    scopes = np.repeat(np.array([some.file.scope for some in several], np.int64), counts)
    numbers = np.repeat(np.array([some.file.sequence_number for some in several], np.int64), counts)
    gone = index.removes(np.concatenate([some.hashes for some in several]), keys, scopes, numbers)
    ends = np.cumsum(counts)
    for some, mask in zip(several, np.split(gone, ends[:-1]), strict=True):
        yield some.file.index, some.positions[mask]
