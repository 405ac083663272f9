"""A stream of changes to lineitem, and the truth about the table that it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tasks.demo.lineitem import KEY
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

#: Of the table's rows, in each batch.
UPDATED = 0.004
DELETED = 0.001
#: Changes come to a tenth of the rows, so that some change again and again.
_HOT = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit changed."""

    updated: int
    deleted: int
    delete_files: int


class Stream:
    """Writes to one table as a CDC stream does, and keeps account of the rows that it must hold.

    The same calls give the same rows on every machine.

    Args:
        table: An empty one.
        summed: Whether rows are summed up, which takes DataFusion; else they are only counted.
    """

    def __init__(self, table: StreamTable, *, summed: bool = True) -> None:
        self.table = table
        #: The checksum of the rows that the table holds, by what was written and not by what any reader says.
        self.truth = Checksum()
        self._sum = Checksum.of if summed else _counted
        self._hot: pa.Table | None = None
        self._loaded = 0
        self._random = np.random.default_rng(6)

    def load(self, rows: pa.Table) -> None:
        """Append rows, as the snapshot of the source that comes before its changes."""
        self.table.append(rows)
        self.truth += self._sum(rows)
        hot = rows.take(self._pick(len(rows), int(len(rows) * _HOT)))
        self._hot = hot if self._hot is None else pa.concat_tables([self._hot, hot])
        self._loaded += len(rows)

    def change(self) -> Batch:
        """Commit one batch: equality deletes of all rows that change or go, and the new state of those that change."""
        assert self._hot is not None, "load rows first"
        updated, deleted = (max(1, int(self._loaded * share)) for share in (UPDATED, DELETED))
        picked = self._pick(len(self._hot), updated + deleted)
        old = self._hot.take(picked)
        new = self._changed(old.slice(0, updated))
        deletes = self.table.write_equality_deletes(old.select(KEY), KEY)
        self.table.commit(RowDelta([*self.table.write_data(new), *deletes]))
        self.truth += self._sum(new) - self._sum(old)
        untouched = np.ones(len(self._hot), dtype=bool)
        untouched[picked] = False
        self._hot = pa.concat_tables([self._hot.filter(pa.array(untouched)), new])
        return Batch(len(new), len(old) - len(new), len(deletes))

    def _pick(self, of: int, count: int) -> np.ndarray:
        return self._random.choice(of, min(count, of), replace=False)

    def _changed(self, rows: pa.Table) -> pa.Table:
        """Rows with another discount and another receipt date."""
        percents = pa.array(self._random.integers(0, 11, len(rows)))
        later = self._random.integers(1, 31, len(rows)).astype("timedelta64[D]")
        receipt = rows["l_receiptdate"].to_numpy() + later
        columns = {
            "l_discount": pc.multiply(percents.cast(pa.decimal128(19, 0)), Decimal("0.01")),
            "l_receiptdate": receipt,
        }
        for name, values in columns.items():
            field = rows.schema.field(name)
            rows = rows.set_column(rows.schema.get_field_index(name), field, pa.array(values).cast(field.type))
        return rows


def _counted(rows: pa.Table) -> Checksum:
    return Checksum(len(rows))
