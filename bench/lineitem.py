"""TPC-H's lineitem as a stream of updates knows it: all rows in memory, and what they hold by now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.demo.lineitem import generate
from tasks.testing.reader import Checksum

#: Percent.
_DISCOUNTS = 11
_DAYS = 30


@dataclass(frozen=True, slots=True)
class Update:
    """Rows before and after a change, in the same order."""

    old: pa.Table
    new: pa.Table

    @property
    def difference(self) -> Checksum:
        """What it adds to the checksum of the table."""
        return Checksum.of(self.new) - Checksum.of(self.old)


class Lineitem:
    """The table's rows after some updates. The same calls give the same rows on every machine.

    Updates change the discount and the receipt date, so nothing else has to be kept twice.

    Args:
        scale: TPC-H's scale factor: 1 is 6 million rows.
        seed: what the updates are drawn by.
    """

    def __init__(self, scale: float, seed: int) -> None:
        self._rows = pa.concat_tables(generate(scale, 1)).combine_chunks()
        self._discounts = (self._rows["l_discount"].cast(pa.float64()).to_numpy() * 100).round().astype(np.int64)
        self._receipts = self._rows["l_receiptdate"].cast(pa.int32()).to_numpy().copy()
        self._random = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def loaded(self) -> pa.Table:
        """All rows, as they were before any update."""
        return self._rows

    def rows(self, numbers: npt.NDArray[np.int64]) -> pa.Table:
        """Some rows as they are now."""
        found = self._rows.take(pa.array(numbers))
        found = _replaced(found, "l_discount", _decimals(self._discounts[numbers]))
        return _replaced(found, "l_receiptdate", pa.array(self._receipts[numbers], pa.int32()).cast(pa.date32()))

    def update(self, share: float) -> Update:
        """Change a share of the rows, drawn at random; none comes twice."""
        count = max(1, round(len(self) * share))
        numbers = self._random.choice(len(self), count, replace=False).astype(np.int64)
        old = self.rows(numbers)
        self._discounts[numbers] = self._random.integers(0, _DISCOUNTS, count)
        self._receipts[numbers] += self._random.integers(1, _DAYS + 1, count, dtype=np.int32)
        return Update(old, self.rows(numbers))


def _decimals(hundredths: npt.NDArray[np.int64]) -> pa.Array:
    """Decimals of two places by their hundredths, in the type that lineitem's have."""
    low = hundredths.astype("<i8")
    words = np.column_stack([low, low >> 63])  # 128 bits, two's complement
    return pa.Array.from_buffers(pa.decimal128(15, 2), len(low), [None, pa.py_buffer(words.tobytes())])


def _replaced(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    place = rows.schema.get_field_index(name)
    return rows.set_column(place, rows.schema.field(name), values)
