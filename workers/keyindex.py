"""The deletes of a match as an index that all tasks map: it says exactly which rows of a batch they remove.

Keys lie in segments, in the order of their hashes; a key is looked up by its hash and then compared value by value, so
that keys whose hashes collide are told apart. The file is mapped, so that more cores need no more memory, and rows that
are looked up never enter the JVM.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.batches import gathered
from workers.deletes import Spool, read_part
from workers.keyfilter import Hashes, hash_keys

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

#: Bytes of a delete besides its key: hash, sequence number, scope.
ROW_BYTES: Final = 8 + 8 + 4
#: Deletes of one segment.
_SEGMENT_ROWS: Final = 1 << 19
_SEGMENT_BYTES: Final = 32 << 20


class KeyIndex:
    """Keys in segments, each with distinct keys and the highest sequence number that deletes them."""

    def __init__(self, segments: Sequence[pa.RecordBatch], is_global: bool) -> None:
        self._segments = [_Segment(rows, is_global) for rows in segments]
        self._is_global = is_global

    @classmethod
    def create(cls, path: Path, deletes: Spool, is_global: bool) -> None:
        """Write the index of all deletes into a new file; a segment's worth of them is held in memory at a time."""
        batches = (batch for part in deletes.parts for batch in read_part(part))
        with pa.OSFile(str(path), "wb") as sink:
            writer = None
            for batch in gathered(batches, _SEGMENT_ROWS, _SEGMENT_BYTES):
                rows = _segment(batch, is_global)
                writer = writer or pa.ipc.new_file(sink, rows.schema)
                writer.write_batch(rows)
            if writer is not None:
                writer.close()

    @classmethod
    def open(cls, path: Path, is_global: bool) -> Self:
        """An index that was made before; nothing is copied."""
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        return cls([file.get_batch(number) for number in range(file.num_record_batches)], is_global)

    def removes(self, keys: Sequence[pa.Array], scope: int, number: int) -> Mask:
        """For each row of a data file, whether a delete of its key is newer than the file.

        Args:
            keys: Canonical key columns of the rows.
            scope: Of the file.
            number: The file's data sequence number.
        """
        hashes = hash_keys(keys, 0 if self._is_global else scope + 1, whole=True)
        rows = np.argsort(hashes)  # looked up in order, a tenth of the time: what comes next lies near
        removed = np.zeros(hashes.size, dtype=bool)
        for segment in self._segments:
            removed |= segment.removes(rows, hashes, keys, scope, number)
        return removed


class _Segment:
    def __init__(self, rows: pa.RecordBatch, is_global: bool) -> None:
        self._hashes: Hashes = rows["hash"].to_numpy()
        self._numbers: npt.NDArray[np.int64] = rows["seq"].to_numpy()
        self._scopes: npt.NDArray[np.int32] | None = None if is_global else rows["scope"].to_numpy()
        self._keys: list[pa.Array] = rows.columns[3:]

    def removes(self, rows: Rows, hashes: Hashes, keys: Sequence[pa.Array], scope: int, number: int) -> Mask:
        removed = np.zeros(hashes.size, dtype=bool)
        at = np.searchsorted(self._hashes, hashes[rows])
        while rows.size:
            there = at < self._hashes.size
            there[there] = self._hashes[at[there]] == hashes[rows[there]]
            rows, at = rows[there], at[there]
            same = _same(self._keys, at, keys, rows)
            if self._scopes is not None:
                same &= self._scopes[at] == scope
            removed[rows[same]] = self._numbers[at[same]] > number
            rows, at = rows[~same], at[~same] + 1
        return removed


def _segment(deletes: pa.RecordBatch, is_global: bool) -> pa.RecordBatch:
    """Deletes in the order of their hashes; of the same key only the one with the highest number."""
    scopes, numbers, keys = deletes["scope"].to_numpy(), deletes["seq"].to_numpy(), deletes.columns[2:]
    hashes = hash_keys(keys, 0 if is_global else scopes.astype(np.int64) + 1, whole=True)
    order = np.argsort(hashes) if numbers.min() == numbers.max() else np.lexsort((-numbers, hashes))
    hashes, rows = hashes[order], deletes.take(pa.array(order))
    keys, second = rows.columns[2:], np.arange(1, hashes.size)
    again = hashes[1:] == hashes[:-1]
    again[again] = _same(keys, second[again], keys, second[again] - 1)
    if not is_global:
        again &= np.diff(rows["scope"].to_numpy()) == 0
    rows = pa.RecordBatch.from_arrays([pa.array(hashes), *rows.columns], names=["hash", *rows.schema.names])
    return rows.filter(pa.array(np.concatenate([[True], ~again]))) if again.any() else rows


def _same(left: Sequence[pa.Array], at: Rows, right: Sequence[pa.Array], rows: Rows) -> Mask:
    """Whether keys are the same, null being the same as null."""
    same = np.ones(at.size, dtype=bool)
    for one, other in zip(left, right, strict=True):
        ours, theirs = one.take(pa.array(at)), other.take(pa.array(rows))
        equal = pc.equal(ours, theirs)
        if equal.null_count:
            equal = pc.or_(equal.fill_null(False), pc.and_(ours.is_null(), theirs.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same
