"""The order of a unit's rows: their keys, the ranges that they fall into, and the sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.model.delete_set import ContentFile
from workers.sorting.ranges import Ranges
from workers.sorting.ranks import Direction, Numbers, order_of
from workers.sorting.sample import of_place
from workers.sorting.sort_keys import RowKeys
from workers.sorting.zorder import Curve

_ASCENDING: Final = Direction()
_PART: Final = "part"
_PLACE: Final = "place"
#: Bytes that sorting takes for each row, besides the row.
SORT_BYTES: Final = 48


@dataclass(frozen=True)
class RowSorter:
    """Sorts rows by their keys. A run keeps rows with their keys in front:

    ``part``, a number that stands for the partition's text, then ``place``, where the row was, then those keys that
    are not made from the row at next to no cost, then the row.
    """

    keys: RowKeys
    #: Of a z-order.
    curve: Curve | None
    ranges: Ranges
    #: Of the rows.
    rows: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """Of kept rows."""
        empty = pa.RecordBatch.from_pylist([], schema=self.rows)
        types = [pa.int32(), pa.int64(), *(key.type for key in self._kept_keys(empty))]
        names = [_PART, _PLACE, *(f"key{index}" for index in range(len(types) - 2))]
        return pa.schema([*map(pa.field, names, types), *self.rows])

    @property
    def width(self) -> int:
        """How many columns kept rows have in front."""
        return 2 + (1 if self.curve is not None else len(self._computed_keys))

    def kept(self, parts: npt.NDArray[np.int32], place: int, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of kept rows, of rows that follow one another from a place on."""
        places = np.arange(place, place + batch.num_rows)
        return [pa.array(parts), pa.array(places), *self._kept_keys(batch), *batch.columns]

    def encoded(self, file: ContentFile, batch: pa.RecordBatch) -> pa.DictionaryArray:
        """The partition's text of each row; ValueError where a transform does not apply to a value."""
        return self.keys.partitioning.encoded(file, batch)

    def order(self, batches: Sequence[pa.RecordBatch], ranks: Sequence[npt.NDArray[np.int64]]) -> Numbers:
        """Indexes of kept rows in order, counted through the batches.

        Args:
            batches: Of kept rows.
            ranks: For each batch, what the numbers of partitions rank as.
        """
        parts = [pa.array(rank[batch.column(0).to_numpy()]) for rank, batch in zip(ranks, batches, strict=True)]
        each = zip(*(self._keys(batch) for batch in batches), strict=True)
        keys = [pa.chunked_array(chunks) for chunks in each]
        places = pa.chunked_array([batch.column(1) for batch in batches])
        columns = [pa.chunked_array(parts), *keys, *of_place(places)]
        return order_of(columns, [_ASCENDING, *self._inner, _ASCENDING, _ASCENDING])

    def starts(self, batch: pa.RecordBatch, texts: pa.Array) -> list[int]:
        """Where each range begins among kept rows that are in order; as many as there are ranges.

        Args:
            batch: The rows.
            texts: Of partitions, by their numbers.
        """
        keys = self._keys(batch)
        wanted = np.arange(1, len(self.ranges))
        low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), batch.num_rows)
        while (low < high).any():
            middle = (low + high) // 2
            rows = pa.array(np.minimum(middle, batch.num_rows - 1))
            some = [
                texts.take(batch.column(0).take(rows)),
                *(key.take(rows) for key in keys),
                batch.column(1).take(rows),
            ]
            below = (self.ranges.of_rows(some) < wanted) & (low < high)
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        return [0, *low.tolist()]

    @property
    def directions(self) -> list[Direction]:
        """Of the partition's text, the keys, and the place: what ranges are of."""
        return [_ASCENDING, *self._inner, _ASCENDING]

    @property
    def _inner(self) -> list[Direction]:
        return [_ASCENDING] if self.curve is not None else self.keys.directions

    @property
    def _computed_keys(self) -> list[int]:
        return [index for index, key in enumerate(self.keys.order) if not key.is_identity]

    def _kept_keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        if self.curve is not None:
            return [self.curve.of_rows(self.keys.columns(batch))]
        return [self.keys.order[index].of_rows(batch) for index in self._computed_keys]

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The keys of kept rows."""
        kept = iter(batch.columns[2 : self.width])
        if self.curve is not None:
            return list(kept)
        rows = pa.RecordBatch.from_arrays(batch.columns[self.width :], schema=self.rows)
        return [key.of_rows(rows) if key.is_identity else next(kept) for key in self.keys.order]
