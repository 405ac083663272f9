"""Deletes of one file without those that repeat a long key: a dictionary holds it once, scratch would hold it often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from workers.deletes.key_index import same_keys

#: Rows of fewer bytes are not worth a look.
_WIDE: Final = 512


class Distinct:
    """Gathers deletes of one file, whose scope and sequence number are the same, and drops what repeats.

    Deletes of short keys pass as they are. Keys that come again after others have filled the memory pass again.

    Args:
        most_bytes: What is gathered, about.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take rows of ``hash, scope, seq, k0, …``; give those that need not wait."""
        if rows.nbytes < _WIDE * rows.num_rows:
            yield rows
            return
        self._waiting.append(_once(rows))
        self._bytes += self._waiting[-1].nbytes
        if self._bytes < self._most:
            return
        together = _once(pa.concat_batches(self._waiting))
        self._waiting, self._bytes = [together], together.nbytes
        if self._bytes >= self._most // 2:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Give what waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting:
            yield _once(pa.concat_batches(waiting))


def _once(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows whose key is not that of the first row of the same hash, and that first row."""
    _, firsts, which = np.unique(rows["hash"].to_numpy(), return_index=True, return_inverse=True)
    if len(firsts) == rows.num_rows:
        return rows
    again = np.flatnonzero(firsts[which] != np.arange(rows.num_rows))
    keep = np.ones(rows.num_rows, dtype=bool)
    keys = rows.columns[3:]
    keep[again] = ~same_keys(keys, firsts[which[again]], keys, again)
    return rows.filter(pa.array(keep))
