"""Equality deletes in scratch, partitioned by the hashes of their keys, and as an index that rows are looked up in.

A part holds the deletes of one range of hashes. So a row can only be deleted by the part of its own hash, and each part
is small enough to be sorted in memory, however many deletes there are.

The index has a file for each part, in which keys lie in the order of their hashes. A row that is found in the part of
its hash is compared value by value, so that keys whose hashes collide are told apart. Tasks map the files, and give
back the pages of a large index part by part: what it takes of memory does not grow with the deletes.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.deletes.bloom_filter import Hashes
from workers.runtime.parallel import coalesce_batches

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

#: Bytes of a delete besides its key: hash, sequence number, scope.
ROW_BYTES: Final = 8 + 8 + 4
#: Deletes that are sorted at a time. A part of more, or of wide keys, has several segments.
_SEGMENT_ROWS: Final = 1 << 19
_SEGMENT_BYTES: Final = 32 << 20
#: A smaller index stays mapped; of a larger one a task holds the pages of one part at a time.
_MAPPED_BYTES: Final = 32 << 20
_SUFFIX: Final = ".index"
#: Deletes of one part, about.
_PART_ROWS: Final = 1 << 18
#: Each part is an open file.
_MOST_PARTS: Final = 256
_HALF: Final = np.uint64(32)


def part_count(rows: int) -> int:
    """Return the number of parts for a number of deletes."""
    return max(1, min(_MOST_PARTS, -(-rows // _PART_ROWS)))


def parts_of(hashes: Hashes, parts: int) -> npt.NDArray[np.uint16]:
    """Return the part of each hash; it ascends with the hash."""
    return ((hashes >> _HALF) * np.uint64(parts) >> _HALF).astype(np.uint16)


class PartWriter:
    """Writes rows, whose first column is the hash, into one Arrow stream for each part; threads may share it."""

    def __init__(self, folder: Path, schema: pa.Schema, parts: int) -> None:
        self.paths = [folder / f"{number}.arrows" for number in range(parts)]
        self._streams: list[pa.RecordBatchStreamWriter] = []
        self._locks = [threading.Lock() for _ in range(parts)]
        self._rows = [0] * parts
        try:
            for path in self.paths:
                self._streams.append(pa.ipc.new_stream(str(path), schema))
        except BaseException:
            self.close()
            raise

    def write(self, rows: pa.RecordBatch) -> None:
        """Write each row into its part."""
        parts = len(self._streams)
        numbers = parts_of(rows.column(0).to_numpy(), parts)
        if parts > 1:
            rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
        counts = np.bincount(numbers, minlength=parts)
        starts = np.cumsum(counts) - counts
        for part in np.flatnonzero(counts).tolist():
            with self._locks[part]:
                self._streams[part].write_batch(rows.slice(starts[part], counts[part]))
                self._rows[part] += int(counts[part])

    def close(self) -> tuple[Path, ...]:
        """End all streams, delete those without rows, and return the others, ascending by part."""
        for stream in self._streams:
            stream.close()
        for path, rows in zip(self.paths, self._rows, strict=True):
            if not rows:
                path.unlink(missing_ok=True)
        return tuple(path for path, rows in zip(self.paths, self._rows, strict=True) if rows)


def read_part(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a part, mapped into memory a batch at a time; all columns by default."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield batch if columns is None else batch.select(columns)


def write_index(part: Path, is_global: bool) -> None:
    """Replace a part of a spool by its index; a segment's worth of deletes is held in memory at a time."""
    with pa.OSFile(str(part.with_suffix(_SUFFIX)), "wb") as sink:
        writer = None
        for batch in coalesce_batches(read_part(part), _SEGMENT_ROWS, _SEGMENT_BYTES):
            rows = _segment(batch, is_global)
            writer = writer or pa.ipc.new_file(sink, rows.schema)
            writer.write_batch(rows)
        if writer is not None:
            writer.close()
    part.unlink()


class KeyIndex:
    """Distinct keys, each with the highest sequence number that deletes it.

    It is opened by the paths of the spool's parts; ``parts`` counts those without deletes too.
    """

    def __init__(self, paths: Sequence[Path], parts: int, is_global: bool) -> None:
        files = {int(path.stem): path.with_suffix(_SUFFIX) for path in paths}
        self._parts = {number: _Part(path, is_global) for number, path in files.items()}
        self._count = parts
        self.stays_mapped = sum(path.stat().st_size for path in files.values()) <= _MAPPED_BYTES

    def removes(self, hashes: Hashes, keys: Sequence[pa.Array], scopes: Rows, numbers: Rows) -> Mask:
        """Return for each row of data files whether a delete of its key is newer than its file.

        Args:
            hashes: Of the rows' keys, as they are partitioned by.
            keys: Canonical key columns of the rows.
            scopes: Of each row's file.
            numbers: The data sequence number of each row's file.
        """
        order = np.argsort(hashes)  # looked up in order, a tenth of the time: what comes next lies near
        hashes = hashes[order]
        ends = np.searchsorted(parts_of(hashes, self._count), np.arange(self._count, dtype=np.uint16), side="right")
        removed = np.zeros(order.size, dtype=bool)
        start = 0
        for number, end in enumerate(ends.tolist()):
            if start < end and number in self._parts:
                part, rows = self._parts[number], order[start:end]
                for segment in part.segments:
                    segment.mark(removed, hashes[start:end], rows, keys, scopes, numbers)
                if not self.stays_mapped:
                    part.release()
            start = end
        return removed


class _Part:
    """The mapped file of one part; nothing is copied."""

    def __init__(self, path: Path, is_global: bool) -> None:
        self._path = path
        self._is_global = is_global

    @cached_property
    def _pages(self) -> mmap.mmap:
        with self._path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    @cached_property
    def segments(self) -> list[_Segment]:
        file = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(self._pages)))
        return [_Segment(file.get_batch(number), self._is_global) for number in range(file.num_record_batches)]

    def release(self) -> None:
        """Let the kernel take the pages from this process; they are there again when they are looked at."""
        if hasattr(mmap, "MADV_DONTNEED"):
            self._pages.madvise(mmap.MADV_DONTNEED)


class _Segment:
    def __init__(self, rows: pa.RecordBatch, is_global: bool) -> None:
        self._hashes: Hashes = rows["hash"].to_numpy()
        self._numbers: Rows = rows["seq"].to_numpy()
        self._scopes: npt.NDArray[np.int32] | None = None if is_global else rows["scope"].to_numpy()
        self._keys: list[pa.Array] = rows.columns[3:]

    def mark(
        self, removed: Mask, hashes: Hashes, rows: Rows, keys: Sequence[pa.Array], scopes: Rows, numbers: Rows
    ) -> None:
        """Mark which of the rows are removed; they come in the order of their hashes."""
        at = np.searchsorted(self._hashes, hashes)
        while rows.size:
            there = np.flatnonzero(self._hashes[np.minimum(at, self._hashes.size - 1)] == hashes)
            there = there[at[there] < self._hashes.size]
            rows, at, hashes = rows[there], at[there], hashes[there]
            same = same_keys(self._keys, at, keys, rows)
            if self._scopes is not None:
                same &= self._scopes[at] == scopes[rows]
            removed[rows[same]] |= self._numbers[at[same]] > numbers[rows[same]]
            rows, at, hashes = rows[~same], at[~same] + 1, hashes[~same]


def _segment(deletes: pa.RecordBatch, is_global: bool) -> pa.RecordBatch:
    """Return deletes in the order of their hashes; of the same key only the one with the highest number."""
    hashes = deletes["hash"].to_numpy()
    order = np.argsort(hashes)
    hashes = hashes[order]
    again = np.concatenate([[False], hashes[1:] == hashes[:-1]])
    if not again.any():
        return deletes.take(pa.array(order))
    # Deletes of one hash come by their numbers, the highest first.
    alike = np.flatnonzero(again | np.append(again[1:], False))
    unsorted = order[alike]
    order[alike] = unsorted[np.lexsort((-deletes["seq"].to_numpy()[unsorted], hashes[alike]))]
    rows = deletes.take(pa.array(order))
    keys, second = rows.columns[3:], np.flatnonzero(again)
    again[second] = same_keys(keys, second, keys, second - 1)
    if not is_global:
        again[1:] &= np.diff(rows["scope"].to_numpy()) == 0
    return rows.filter(pa.array(~again))


def same_keys(left: Sequence[pa.Array], at: Rows, right: Sequence[pa.Array], rows: Rows) -> Mask:
    """Return which keys are equal; null equals null."""
    same = np.ones(at.size, dtype=bool)
    for one, other in zip(left, right, strict=True):
        ours, theirs = one.take(pa.array(at)), other.take(pa.array(rows))
        equal = pc.equal(ours, theirs)
        if equal.null_count:
            equal = pc.or_(equal.fill_null(False), pc.and_(ours.is_null(), theirs.is_null()))
        same &= equal.to_numpy(zero_copy_only=False)
    return same
