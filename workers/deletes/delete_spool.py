"""The delete side of a match: every equality delete file is read once, into parts in scratch, whatever its size.

Besides the keys themselves this leaves what the data side needs to drop most rows early: a filter of the keys and
their bounds. Memory does not grow with the number of deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from workers.arrow.canonical import canonical_type, spark_type
from workers.deletes.bloom_filter import Hashes, KeyFilter, hash_keys, whole_hashes
from workers.deletes.key_index import same_keys
from workers.deletes.key_partitions import PartWriter, part_count
from workers.formats.format_model import Bounds, bounds_of
from workers.formats.key_reader import KeyBatch, KeyReader
from workers.model.convert_unit import KeyColumn, KeyFile, Match
from workers.runtime.context import Cancellation
from workers.runtime.machine import Budget

#: Rows of fewer bytes are not worth a search for duplicates.
_WIDE: Final = 512
#: Files are small and storage may be far away.
_READERS: Final = 8
#: The first key column of what is in scratch.
_KEYS: Final = 3
#: Bytes that a broadcast key takes in Spark's heap besides its values.
_ROW_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Spool:
    """The deletes of one match in scratch: rows of ``hash, scope, seq, k0, …`` in canonical form."""

    #: Arrow streams of the parts that hold any.
    paths: tuple[Path, ...]
    #: How many parts keys are dealt to by their hashes.
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
    """Names of the key columns in frames."""
    return [f"k{index}" for index in range(len(columns))]


def arrow_schema(columns: Sequence[KeyColumn]) -> pa.Schema:
    """What a spool holds besides the hashes of its keys."""
    keys = [(name, canonical_type(column.type)) for name, column in zip(key_names(columns), columns, strict=True)]
    return pa.schema([("scope", pa.int32()), ("seq", pa.int64()), *keys])


def spark_schema(columns: Sequence[KeyColumn]) -> str:
    """The same as Spark's DDL names it."""
    keys = (f"{name} {spark_type(column.type)}" for name, column in zip(key_names(columns), columns, strict=True))
    return ", ".join(("scope int", "seq bigint", *keys))


def key_hashes(is_global: bool, file: KeyFile, columns: Sequence[pa.Array]) -> Hashes:
    """Hashes under which a file's keys are in the filter; those of a scoped delete reach its own scope only."""
    return hash_keys(columns, _seed(is_global, file))


def part_hashes(is_global: bool, file: KeyFile, columns: Sequence[pa.Array], hashes: Hashes) -> Hashes:
    """Hashes by which a file's keys are dealt to parts and looked up in them, from those of the filter."""
    return whole_hashes(columns, _seed(is_global, file), hashes)


def _seed(is_global: bool, file: KeyFile) -> int:
    return 0 if is_global else file.scope + 1


def spool(match: Match, reader: KeyReader, folder: Path, budget: Budget, cancellation: Cancellation) -> Spool:
    """Read all delete files of a match into a folder.

    Raises:
        CorruptFile, UnsupportedFile: a delete file cannot be used.
        Stopped: The work is cancelled.
    """
    folder.mkdir()
    readers = min(_READERS, len(match.deletes))
    reader = replace(reader, batch_bytes=max(1 << 20, reader.batch_bytes // readers))
    expected = sum(file.record_count for file in match.deletes)
    keys = KeyFilter.create(folder / "filter", expected, budget.broadcast_bytes)
    lock = threading.Lock()
    schema = pa.schema([("hash", pa.uint64()), *arrow_schema(match.columns)])
    parts = PartWriter(folder, schema, part_count(expected))

    def read(file: KeyFile) -> _Seen:
        seen, distinct = _Seen(), Distinct(reader.batch_bytes)
        for batch in reader.read(file, required=True):
            cancellation.check()
            hashes = key_hashes(match.is_global, file, batch.columns)
            with lock:
                keys.add(hashes)
            hashes = part_hashes(match.is_global, file, batch.columns, hashes)
            for rows in distinct.add(_rows(schema, hashes, file, batch)):
                parts.write(rows)
                seen.keep(rows)
            seen.add(match.columns, batch)
        for rows in distinct.rest():
            parts.write(rows)
            seen.keep(rows)
        return seen

    pool = ThreadPoolExecutor(readers, thread_name_prefix="deletes")
    try:
        seen = list(pool.map(read, match.deletes))
    finally:
        pool.shutdown(cancel_futures=True)
        paths = parts.close()
    rows = sum(file.rows for file in seen)
    return Spool(
        paths=paths,
        parts=len(parts.paths),
        filter=folder / "filter",
        bounds=_union([file.bounds for file in seen if file.bounds], len(match.columns)),
        rows=rows,
        bytes=sum(file.bytes for file in seen),
        distinct=keys.distinct(rows),
    )


def _rows(schema: pa.Schema, hashes: Hashes, file: KeyFile, batch: KeyBatch) -> pa.RecordBatch:
    scope = pa.array(np.full(hashes.size, file.scope, np.int32))
    seq = pa.array(np.full(hashes.size, file.sequence_number, np.int64))
    return pa.RecordBatch.from_arrays([pa.array(hashes), scope, seq, *batch.columns], schema=schema)


@dataclass(slots=True)
class _Seen:
    """What a delete file was found to hold: bounds of all keys, and what went into scratch."""

    rows: int = 0
    bytes: int = 0
    bounds: tuple[Bounds | None, ...] = ()

    def add(self, columns: tuple[KeyColumn, ...], batch: KeyBatch) -> None:
        bounds = bounds_of(columns, batch.columns)
        self.bounds = _union([self.bounds, bounds], len(bounds)) if self.bounds else bounds

    def keep(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self.bytes += sum(array.nbytes for array in rows.columns[_KEYS:])


def _union(several: Sequence[tuple[Bounds | None, ...]], columns: int) -> tuple[Bounds | None, ...]:
    """Bounds of each column over all; None as soon as one is unknown."""
    merged: list[Bounds | None] = []
    for index in range(columns):
        known = [bounds[index] for bounds in several]
        whole: Bounds | None = Bounds()
        for bounds in known:
            whole = None if whole is None or bounds is None else whole.union(bounds)
        merged.append(whole)
    return tuple(merged)


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
