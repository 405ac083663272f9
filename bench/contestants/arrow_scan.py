"""The yardstick of conversions: which rows do the deletes remove, by a scan of the key columns and nothing else.

Threads read the columns with PyArrow. A 64-bit word of each key is looked up in an array of flags, as in a Bloom filter
with one hash; the few rows that pass are looked up among the sorted words of the deleted keys, and compared with them
value by value. It relies on what W0's tables have: one partition, deletes that are newer than all data, no nulls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable

from bench.files import live_files
from bench.peers.serving import claim_stdout, serve

_BATCH = 1 << 17
#: Flags for each deleted key, at least: of the rows that stay, so few are looked at closely.
_SPARSE = 16
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_WORD = 8

Words: TypeAlias = npt.NDArray[np.uint64]


def words(columns: Sequence[pa.Array]) -> Words:
    """A 64-bit word of each key: equal keys have the same one, others seldom do."""
    mixed = _word(columns[0])
    for column in columns[1:]:
        mixed = mixed * _MIX ^ _word(column)
    return mixed


def _word(column: pa.Array) -> Words:
    if pa.types.is_integer(column.type):
        numbers: Words = column.to_numpy().view(np.uint64)
        return numbers
    return _last_bytes(column)


def _last_bytes(column: pa.Array) -> Words:
    """The last eight bytes of each string, or all of a shorter one."""
    _, offsets, data = column.buffers()
    wide = np.int64 if pa.types.is_large_string(column.type) else np.int32
    ends = np.frombuffer(offsets, dtype=wide)[column.offset : column.offset + len(column) + 1]
    contents = np.frombuffer(data, dtype=np.uint8)[: ends[-1]]
    padded = np.concatenate([np.zeros(_WORD, dtype=np.uint8), contents])
    sliding = np.ndarray(contents.size + 1, dtype="<u8", buffer=padded, strides=(1,))
    found: Words = sliding[ends[1:]]
    lengths = np.diff(ends)
    if lengths.size and lengths.min() < _WORD:  # bytes of the string before it came first
        foreign = np.clip(8 * (_WORD - lengths), 0, 63).astype(np.uint64)
        found = np.where(lengths > 0, found >> foreign << foreign, np.uint64(0))
    return found


class Deleted:
    """The deleted keys.

    Args:
        keys: Their columns.
    """

    def __init__(self, keys: pa.Table) -> None:
        columns = [keys[name].combine_chunks() for name in keys.column_names]
        found = words(columns)
        order = np.argsort(found, kind="stable")
        self._words = found[order]
        self._columns = [column.take(pa.array(order)) for column in columns]
        #: How many keys share a word at most; a key that is deleted twice shares one with itself.
        self._most = int(np.unique(self._words, return_counts=True)[1].max())
        bits = max(16, int(len(order) * _SPARSE - 1).bit_length())
        self._shift = np.uint64(64 - bits)
        self._flags = np.zeros(1 << bits, dtype=np.bool_)
        self._flags[self._slots(self._words)] = True

    def positions(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.int64]:
        """Which rows of a batch they remove."""
        found = words(columns)
        maybe = np.flatnonzero(self._flags[self._slots(found)])
        first = np.searchsorted(self._words, found[maybe])
        near = [column.take(pa.array(maybe)) for column in columns]
        equal = np.zeros(maybe.size, dtype=np.bool_)
        for step in range(self._most):
            at = pa.array(np.minimum(first + step, self._words.size - 1))
            same = np.ones(maybe.size, dtype=np.bool_)
            for mine, theirs in zip(near, self._columns, strict=True):
                same &= pc.equal(mine, theirs.take(at)).to_numpy(zero_copy_only=False)
            equal |= same
        return maybe[equal]

    def _slots(self, found: Words) -> Words:
        return (found * _MIX) >> self._shift


def scan(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Find the rows that a table's equality deletes remove."""
    table = StaticTable.from_metadata(asked["metadata_locations"][0])
    files: dict[DataFileContent, list[str]] = {content: [] for content in DataFileContent}
    names: list[str] = []
    for file in live_files(table):
        files[file.content].append(file.path.removeprefix("file://"))
        names = names or [table.schema().find_column_name(number) or "" for number in file.equality_ids]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        read = threads.map(lambda path: pq.read_table(path, columns=names), files[DataFileContent.EQUALITY_DELETES])
        deleted = Deleted(pa.concat_tables(read))
        found = threads.map(lambda path: _scan_file(path, names, deleted), files[DataFileContent.DATA])
        return {"positions": sum(len(positions) for positions in found)}


def _scan_file(path: str, names: Sequence[str], deleted: Deleted) -> npt.NDArray[np.int64]:
    """Positions of the rows of a file that are removed."""
    first, found = 0, []
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(batch_size=_BATCH, columns=list(names), use_threads=False):
            found.append(deleted.positions([batch.column(name) for name in names]) + first)
            first += batch.num_rows
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


if __name__ == "__main__":
    serve(claim_stdout(), {"scan": scan}, {"pyarrow": pa.__version__})
