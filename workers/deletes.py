"""The delete side of a match: every equality delete file is read once, into scratch, whatever its size.

Besides the keys themselves this leaves what the data side needs to drop most rows early: a filter of the keys and
their bounds. Memory does not grow with the number of deletes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import pyarrow as pa

from workers.bounds import Bounds, bounds_of
from workers.canonical import arrow_type, spark_type
from workers.keyfilter import Hashes, KeyFilter, hash_keys
from workers.keys import KeyBatch, KeyReader
from workers.machine import Budget
from workers.unit import KeyColumn, KeyFile, Match

#: Files are small and storage may be far away.
_READERS: Final = 8
#: Bytes that a broadcast key takes in Spark's heap besides its values.
_ROW_BYTES: Final = 64


class Stopped(Exception):
    """The conversion was told to stop."""


@dataclass(frozen=True, slots=True)
class Spool:
    """The deletes of one match in scratch: rows of ``scope, seq, k0, …`` in canonical form."""

    #: Arrow streams.
    parts: tuple[Path, ...]
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
    """What a spool holds."""
    keys = [(name, arrow_type(column.type)) for name, column in zip(key_names(columns), columns, strict=True)]
    return pa.schema([("scope", pa.int32()), ("seq", pa.int64()), *keys])


def spark_schema(columns: Sequence[KeyColumn]) -> str:
    """The same as Spark's DDL names it."""
    keys = (f"{name} {spark_type(column.type)}" for name, column in zip(key_names(columns), columns, strict=True))
    return ", ".join(("scope int", "seq bigint", *keys))


def key_hashes(is_global: bool, file: KeyFile, columns: Sequence[pa.Array]) -> Hashes:
    """Hashes under which a file's keys are in the filter; those of a scoped delete reach its own scope only."""
    return hash_keys(columns, 0 if is_global else file.scope + 1)


def spool(match: Match, reader: KeyReader, folder: Path, budget: Budget, stopped: Callable[[], bool]) -> Spool:
    """Read all delete files of a match into a folder.

    Raises:
        CorruptFile, UnsupportedFile: a delete file cannot be used.
        Stopped: ``stopped()`` became true.
    """
    folder.mkdir()
    readers = min(_READERS, len(match.deletes))
    reader = replace(reader, batch_bytes=max(1 << 20, reader.batch_bytes // readers))
    keys = KeyFilter.create(folder / "filter", sum(file.record_count for file in match.deletes), budget.broadcast_bytes)
    lock = threading.Lock()
    parts = [_Part(folder / f"{number}.arrows", match.columns) for number in range(readers)]
    free: SimpleQueue[_Part] = SimpleQueue()
    for part in parts:
        free.put(part)

    def read(file: KeyFile) -> None:
        part = free.get()
        try:
            for batch in reader.read(file, required=True):
                if stopped():
                    raise Stopped
                hashes = key_hashes(match.is_global, file, batch.columns)
                with lock:
                    keys.add(hashes)
                part.write(file, batch)
        finally:
            free.put(part)

    pool = ThreadPoolExecutor(readers, thread_name_prefix="deletes")
    try:
        for _ in pool.map(read, match.deletes):
            pass
    finally:
        pool.shutdown(cancel_futures=True)
        for part in parts:
            part.close()
    rows = sum(part.rows for part in parts)
    return Spool(
        parts=tuple(part.path for part in parts if part.rows),
        filter=folder / "filter",
        bounds=_union([part.bounds for part in parts if part.bounds], len(match.columns)),
        rows=rows,
        bytes=sum(part.bytes for part in parts),
        distinct=keys.distinct(rows),
    )


def read_part(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a part, mapped into memory a batch at a time."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        yield from stream


class _Part:
    """What one reader writes."""

    def __init__(self, path: Path, columns: tuple[KeyColumn, ...]) -> None:
        self.path = path
        self.rows = 0
        self.bytes = 0
        self.bounds: tuple[Bounds | None, ...] = ()
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._stream = pa.ipc.new_stream(str(path), self._schema)

    def write(self, file: KeyFile, batch: KeyBatch) -> None:
        rows = len(batch)
        scope = pa.repeat(pa.scalar(file.scope, pa.int32()), rows)
        seq = pa.repeat(pa.scalar(file.sequence_number, pa.int64()), rows)
        self._stream.write_batch(pa.RecordBatch.from_arrays([scope, seq, *batch.columns], schema=self._schema))
        bounds = bounds_of(self._columns, batch.columns)
        self.bounds = _union([self.bounds, bounds], len(bounds)) if self.bounds else bounds
        self.rows += rows
        self.bytes += sum(array.nbytes for array in batch.columns)

    def close(self) -> None:
        self._stream.close()


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
