"""A stream of checkpoints into a table of events, as Flink's writers leave them: three files each."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from producer.iceberg.manifest_entry import NewFile
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("city", pa.string()),
        ("note", pa.string()),
        ("amount", pa.float64()),
        ("version", pa.int64()),
    ]
)
_NOTES = 4096
_CITIES = 250
_PRIME = 0x9E3779B1

_Numbers = npt.NDArray[np.int64]


class Checkpoints:
    """Commits checkpoints of one size, and keeps account of the rows that the table must hold.

    Each has a data file; an equality delete file for the rows of earlier checkpoints that it writes anew, anywhere in
    the table; and a position delete file for rows that it wrote itself and then once more.

    Args:
        rows: of a data file.
        replaced: rows of it that are in the table already; the first checkpoint finds none, and deletes in vain.
        twice: rows of it that are superseded in the same file.
    """

    def __init__(self, table: StreamTable, rows: int, replaced: int, twice: int) -> None:
        self.table = table
        self.truth = Checksum()
        self._rows, self._replaced, self._twice = rows, replaced, twice
        self._random = np.random.default_rng(2)
        self._notes = _texts(self._random)
        self._versions = np.empty(0, dtype=np.int64)

    def commit(self) -> None:
        """One more checkpoint."""
        known, number = len(self._versions), 2 * len(self._versions)
        old = self._random.choice(known, self._replaced, replace=False) if known else np.empty(0, dtype=np.int64)
        new = np.arange(known, known + self._rows - self._twice - len(old))
        written = self._random.permutation(np.concatenate([old, new]))
        # The rows that are superseded come first, anywhere among the others.
        early = self._random.choice(written, self._twice, replace=False)
        ids, versions = np.concatenate([early, written]), np.full(self._rows, number + 1)
        versions[: self._twice] = number
        order = self._random.permutation(self._rows)
        (data,) = self.table.write_data(self._rows_of(ids[order], versions[order]))
        keys = old if known else -1 - np.arange(self._replaced)
        deletes = self.table.write_equality_deletes(pa.table({"id": keys}), ["id"])
        (superseded,) = np.nonzero(order < self._twice)
        self.table.commit(RowDelta([data, *deletes, *self._position_deletes(data, superseded)]))
        self.truth += Checksum.of(self._rows_of(written, np.full(len(written), number + 1)))
        self.truth -= Checksum.of(self._rows_of(old, self._versions[old]))
        self._versions = np.concatenate([self._versions, np.empty(len(new), dtype=np.int64)])
        self._versions[written] = number + 1

    def _position_deletes(self, data: NewFile, positions: _Numbers) -> list[NewFile]:
        return self.table.write_position_deletes({data: positions.tolist()}, by_partition=True)

    def _rows_of(self, ids: _Numbers, versions: _Numbers) -> pa.Table:
        """Rows by their key and version: the same whenever they are asked for."""
        mixed = (ids * _PRIME + versions * 31) % (1 << 31)
        numbers = pa.array(ids).cast(pa.string())
        columns = [
            pa.array(ids),
            pc.binary_join_element_wise("customer-", numbers, ""),
            pc.binary_join_element_wise("city-", pa.array(mixed % _CITIES).cast(pa.string()), ""),
            self._notes.take(pa.array(mixed % _NOTES)),
            pa.array(mixed / 100),
            pa.array(versions),
        ]
        return pa.table(columns, schema=SCHEMA)


def _texts(random: np.random.Generator) -> pa.Array:
    """Sentences of some 60 letters that do not compress away."""
    letters = random.integers(97, 123, (_NOTES, 60), dtype=np.uint8)
    return pa.array([line.tobytes().decode() for line in letters])
