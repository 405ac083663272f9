"""The spool of equality deletes: every delete file is read once, into parts in scratch, whatever its size.

Beside the keys lies what drops most data rows early: a filter of the keys, and their bounds. Memory does not grow with
the number of deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.arrow.canonical import canonical_type, is_ordered
from workers.deletes.bloom_filter import Hashes, KeyFilter, hash_keys, whole_hashes
from workers.deletes.key_index import PartWriter, part_count, same_keys
from workers.formats.format_model import Bounds, bounds_of
from workers.formats.key_reader import KeyReader
from workers.model.delete_set import ContentFile, EqualityDeletes, FileSplit, KeyColumn
from workers.runtime.bulk_io import opened_soon
from workers.runtime.context import Cancellation
from workers.runtime.machine import Budget

#: Rows of fewer bytes are not worth a search for duplicates.
_WIDE: Final = 512
#: Files that are decoded at a time.
_READERS: Final = 8
#: The first key column of what is in scratch.
_KEYS: Final = 3
#: Bytes that a broadcast key takes in Spark's heap besides its values.
_ROW_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Spool:
    """The deletes of one set of equality ids in scratch: rows of ``hash, scope, seq, k0, …`` in canonical form."""

    #: Arrow streams of the parts that hold any.
    paths: tuple[Path, ...]
    #: The number of parts, those without deletes included.
    parts: int
    #: File of the :class:`KeyFilter` of all keys.
    filter: Path
    #: Of each key column.
    bounds: tuple[Bounds | None, ...]
    rows: int
    bytes: int
    #: About how many different keys there are.
    distinct: int

    @property
    def repeats(self) -> bool:
        """Whether keys come so often that grouping them is worth its price."""
        return self.rows > 1.5 * self.distinct + 1000

    @property
    def broadcast_bytes(self) -> int:
        """About what the different keys take in Spark's heap."""
        return self.distinct * (_ROW_BYTES + 2 * self.bytes // max(1, self.rows))


def key_names(columns: Sequence[KeyColumn]) -> list[str]:
    """Return the names of the key columns in frames."""
    return [f"k{index}" for index in range(len(columns))]


def arrow_schema(columns: Sequence[KeyColumn]) -> pa.Schema:
    """Return the schema of a spool without the hashes of its keys."""
    keys = [(name, canonical_type(column.type)) for name, column in zip(key_names(columns), columns, strict=True)]
    return pa.schema([("scope", pa.int32()), ("seq", pa.int64()), *keys])


def key_hashes(is_global: bool, file: ContentFile, columns: Sequence[pa.Array]) -> Hashes:
    """Return the hashes of a file's keys in the filter; those of a scoped delete are those of its scope only."""
    return hash_keys(columns, 0 if is_global else file.scope + 1)


def part_hashes(is_global: bool, scopes: npt.NDArray[np.int32], columns: Sequence[pa.Array], hashes: Hashes) -> Hashes:
    """Return the hashes by which keys are partitioned and looked up, from those of the filter."""
    return whole_hashes(columns, np.zeros(scopes.size, np.int64) if is_global else scopes.astype(np.int64) + 1, hashes)


def spool(
    deletes: EqualityDeletes, reader: KeyReader, folder: Path, budget: Budget, cancellation: Cancellation
) -> Spool:
    """Read all delete files into a folder; raises DataError if one cannot be used, Stopped if the work is cancelled."""
    folder.mkdir()
    readers = min(_READERS, len(deletes.files))
    reader = replace(reader, batch_bytes=max(1 << 20, reader.batch_bytes // readers))
    expected = sum(file.record_count for file in deletes.files)
    keys = KeyFilter.create(folder / "filter", expected, budget.broadcast_bytes)
    schema = pa.schema([("hash", pa.uint64()), *arrow_schema(deletes.columns)])
    parts = PartWriter(folder, schema, part_count(expected))
    lock = threading.Lock()
    rows = size = 0
    bounds: list[Bounds | None] = [Bounds() if is_ordered(column.type) else None for column in deletes.columns]

    def write(batches: Iterator[pa.RecordBatch]) -> None:
        nonlocal rows, size
        for batch in batches:
            parts.write(batch)
            with lock:
                rows += batch.num_rows
                size += sum(array.nbytes for array in batch.columns[_KEYS:])

    def read(file: ContentFile) -> None:
        distinct = Distinct(reader.batch_bytes)
        for batch in reader.read(FileSplit(file), required=True):
            cancellation.check()
            hashes = key_hashes(deletes.is_global, file, batch.columns)
            found = bounds_of(deletes.columns, batch.columns)
            with lock:
                keys.add(hashes)
                bounds[:] = [old and new and old.union(new) for old, new in zip(bounds, found, strict=True)]
            scopes = np.full(hashes.size, file.scope, np.int32)
            hashes = part_hashes(deletes.is_global, scopes, batch.columns, hashes)
            numbers = np.full(hashes.size, file.sequence_number, np.int64)
            columns = [pa.array(hashes), pa.array(scopes), pa.array(numbers), *batch.columns]
            write(distinct.add(pa.RecordBatch.from_arrays(columns, schema=schema)))
        write(distinct.flush())

    files = opened_soon(reader.io, deletes.files, lambda file: file.path)

    def read_files(_: int) -> None:
        while True:
            with lock:
                file = next(files, None)
            if file is None:
                return
            read(file)

    pool = ThreadPoolExecutor(readers, thread_name_prefix="deletes")
    try:
        list(pool.map(read_files, range(readers)))
    finally:
        pool.shutdown(cancel_futures=True)
        paths = parts.close()
    return Spool(
        paths=paths,
        parts=len(parts.paths),
        filter=folder / "filter",
        bounds=tuple(bounds),
        rows=rows,
        bytes=size,
        distinct=keys.distinct(rows),
    )


class Distinct:
    """Drops repeated deletes of one file, whose scope and sequence number are the same.

    Deletes of short keys pass as they are. About ``most_bytes`` wait to be compared: keys that repeat after others have
    filled them pass again.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add rows of ``hash, scope, seq, k0, …``, and yield those that need not wait."""
        if rows.nbytes < _WIDE * rows.num_rows:
            yield rows
            return
        self._waiting.append(_deduplicate(rows))
        self._bytes += self._waiting[-1].nbytes
        if self._bytes < self._most:
            return
        together = _deduplicate(pa.concat_batches(self._waiting))
        self._waiting, self._bytes = [together], together.nbytes
        if self._bytes >= self._most // 2:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that wait."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if waiting:
            yield _deduplicate(pa.concat_batches(waiting))


def _deduplicate(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows without those whose key is that of the first row of the same hash."""
    _, firsts, which = np.unique(rows["hash"].to_numpy(), return_index=True, return_inverse=True)
    if len(firsts) == rows.num_rows:
        return rows
    again = np.flatnonzero(firsts[which] != np.arange(rows.num_rows))
    keep = np.ones(rows.num_rows, dtype=bool)
    keys = rows.columns[_KEYS:]
    keep[again] = ~same_keys(keys, firsts[which[again]], keys, again)
    return rows.filter(pa.array(keep))
