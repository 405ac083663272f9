"""The deletes of a match in scratch, dealt to parts by the hashes of their keys.

A part holds the deletes of one range of hashes. So a row can only be deleted by the part of its own hash, and each part
is small enough to be sorted in memory, however many deletes there are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.deletes.bloom_filter import Hashes

#: Deletes of one part, about.
_PART_ROWS: Final = 1 << 18
#: Each part is an open file.
_MOST_PARTS: Final = 256
_HALF: Final = np.uint64(32)


def part_count(rows: int) -> int:
    """How many parts so many deletes are dealt to."""
    return max(1, min(_MOST_PARTS, -(-rows // _PART_ROWS)))


def parts_of(hashes: Hashes, parts: int) -> npt.NDArray[np.uint16]:
    """The part of each hash; it ascends with the hash."""
    return ((hashes >> _HALF) * np.uint64(parts) >> _HALF).astype(np.uint16)


class PartWriter:
    """Writes the parts, one Arrow stream each; threads may share it.

    Args:
        folder: Where the streams are made.
        schema: Of the rows, whose first column is the hash.
        parts: How many there are.
    """

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
        """Deal rows to their parts."""
        parts = len(self._streams)
        places = parts_of(rows.column(0).to_numpy(), parts)
        if parts > 1:
            rows = rows.take(pa.array(np.argsort(places, kind="stable")))
        counts = np.bincount(places, minlength=parts)
        starts = np.cumsum(counts) - counts
        for part in np.flatnonzero(counts).tolist():
            some = rows.slice(starts[part], counts[part])
            with self._locks[part]:
                self._streams[part].write_batch(some)
                self._rows[part] += some.num_rows

    def close(self) -> tuple[Path, ...]:
        """End all streams; those that hold rows, by their part's number, and the others are deleted."""
        for stream in self._streams:
            stream.close()
        for path, rows in zip(self.paths, self._rows, strict=True):
            if not rows:
                path.unlink(missing_ok=True)
        return tuple(path for path, rows in zip(self.paths, self._rows, strict=True) if rows)


def read_part(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of a part, mapped into memory a batch at a time; all columns by default."""
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        for batch in stream:
            yield batch if columns is None else batch.select(columns)
