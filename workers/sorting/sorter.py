"""The order of a unit's rows: their keys, the ranges that they fall into, and the sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.sorting.ranges import Ranges
from workers.sorting.sort_keys import Direction, Numbers, RowKeys, sort_indices
from workers.sorting.zorder import Curve

_ASCENDING: Final = Direction()
#: Rows of one split are numbered below this.
_SPLIT_ROWS: Final = 1 << 40
#: Bytes that sorting takes for each row, besides the row.
SORT_BYTES: Final = 48


def row_number(split: int, row: int) -> int:
    """Return the number of a row among the inputs' rows, by its split and its place in it."""
    return split * _SPLIT_ROWS + row


@dataclass(frozen=True)
class RowSorter:
    """Sorts rows by their keys. Sorted runs have *keyed rows*, with these columns:

    ``partition``, a number that stands for the partition's text, ``row_number``, those keys that cost more than next to
    nothing to make from the row again, and the columns of the row.
    """

    keys: RowKeys
    #: Of a z-order.
    curve: Curve | None
    ranges: Ranges
    #: The schema of rows without keys.
    rows: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of keyed rows."""
        empty = pa.RecordBatch.from_pylist([], schema=self.rows)
        keys = [pa.field(f"key{index}", key.type) for index, key in enumerate(self._stored_keys(empty))]
        return pa.schema([("partition", pa.int32()), ("row_number", pa.int64()), *keys, *self.rows])

    @property
    def width(self) -> int:
        """The number of columns that keyed rows have in front."""
        return 2 + (1 if self.curve is not None else len(self._computed_keys))

    @property
    def directions(self) -> list[Direction]:
        """The directions of the columns that ranges are of: the partition's text, the keys, and the row number."""
        keys = [_ASCENDING] if self.curve is not None else self.keys.directions
        return [_ASCENDING, *keys, _ASCENDING]

    def keyed_columns(self, partitions: npt.NDArray[np.int32], first: int, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of keyed rows for consecutive rows, of which the first has the row number ``first``."""
        row_numbers = np.arange(first, first + batch.num_rows)
        return [pa.array(partitions), pa.array(row_numbers), *self._stored_keys(batch), *batch.columns]

    def sort_indices(self, batches: Sequence[pa.RecordBatch], ranks: Sequence[Numbers]) -> Numbers:
        """Return the indexes of keyed rows in order, counted through the batches.

        For each batch, ``ranks`` has the ranks of the partitions that its numbers stand for.
        """
        partitions = [pa.array(rank[batch.column(0).to_numpy()]) for rank, batch in zip(ranks, batches, strict=True)]
        keys = [pa.chunked_array(chunks) for chunks in zip(*map(self._keys, batches), strict=True)]
        row_numbers = pa.chunked_array([batch.column(1) for batch in batches])
        splits = pc.divide(row_numbers, _SPLIT_ROWS)
        rows = pc.subtract(row_numbers, pc.multiply(splits, _SPLIT_ROWS))
        return sort_indices([pa.chunked_array(partitions), *keys, splits, rows], [*self.directions, _ASCENDING])

    def starts(self, batch: pa.RecordBatch, texts: pa.Array) -> list[int]:
        """Return where each range begins among keyed rows in order; ``texts`` are those of their partitions."""
        keys = self._keys(batch)
        wanted = np.arange(1, len(self.ranges))
        low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), batch.num_rows)
        while (low < high).any():
            middle = (low + high) // 2
            rows = pa.array(np.minimum(middle, batch.num_rows - 1))
            columns = [
                texts.take(batch.column(0).take(rows)),
                *(key.take(rows) for key in keys),
                batch.column(1).take(rows),
            ]
            below = (self.ranges.of_rows(columns) < wanted) & (low < high)
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        return [0, *low.tolist()]

    @property
    def _computed_keys(self) -> list[int]:
        return [index for index, key in enumerate(self.keys.order) if not key.is_identity]

    def _stored_keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if self.curve is not None:
            return [self.curve.of_rows(self.keys.columns(batch))]
        return [self.keys.order[index].of_rows(batch) for index in self._computed_keys]

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the keys of keyed rows."""
        stored = iter(batch.columns[2 : self.width])
        if self.curve is not None:
            return list(stored)
        rows = pa.RecordBatch.from_arrays(batch.columns[self.width :], schema=self.rows)
        return [key.of_rows(rows) if key.is_identity else next(stored) for key in self.keys.order]
