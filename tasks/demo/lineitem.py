"""TPC-H's table lineitem: its schema, its rows, its query 6, and a stream that changes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType

from producer.common.errors import Failed, Reason, Refused
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

GENERATOR = "tpchgen-cli"
KEY = ("l_orderkey", "l_linenumber")
BUCKETS = 16

_COLUMNS: dict[str, IcebergType] = {
    "l_orderkey": LongType(),
    "l_partkey": LongType(),
    "l_suppkey": LongType(),
    "l_linenumber": IntegerType(),
    "l_quantity": DecimalType(15, 2),
    "l_extendedprice": DecimalType(15, 2),
    "l_discount": DecimalType(15, 2),
    "l_tax": DecimalType(15, 2),
    "l_returnflag": StringType(),
    "l_linestatus": StringType(),
    "l_shipdate": DateType(),
    "l_commitdate": DateType(),
    "l_receiptdate": DateType(),
    "l_shipinstruct": StringType(),
    "l_shipmode": StringType(),
    "l_comment": StringType(),
}

SCHEMA = Schema(
    *(NestedField(number, name, kind, required=True) for number, (name, kind) in enumerate(_COLUMNS.items(), 1)),
    identifier_field_ids=[number for number, name in enumerate(_COLUMNS, 1) if name in KEY],
)
SPEC = PartitionSpec(
    PartitionField(source_id=1, field_id=1000, transform=BucketTransform(BUCKETS), name="l_orderkey_bucket")
)

#: The forecasting revenue change query, with the validation parameters of the TPC-H specification (2.4.6).
QUERY_6 = """
    select sum(l_extendedprice * l_discount) as revenue from lineitem
    where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
      and l_discount between 0.05 and 0.07 and l_quantity < 24
"""


def generate(scale: float, parts: int) -> Iterator[pa.Table]:
    """Generate the rows in parts of about equal size, one in memory at a time; the same on every machine.

    TPC-H's scale factor 1 is 6 million rows.

    Raises:
        Refused: The generator is not installed.
        Failed: The generator failed.
    """
    with tempfile.TemporaryDirectory(prefix="icefleet-demo-") as folder:
        command = [find_generator(), "parquet", "--tables=lineitem", f"--scale-factor={scale}", f"--parts={parts}"]
        done = subprocess.run(
            [*command, f"--output-dir={folder}", "--quiet"], capture_output=True, text=True, check=False
        )
        files = sorted(Path(folder).rglob("*.parquet"))
        if done.returncode or not files:
            raise Failed(f"{GENERATOR} could not generate lineitem: {done.stderr.strip() or 'it wrote nothing'}")
        for file in files:
            yield pq.read_table(file).cast(schema_to_pyarrow(SCHEMA, include_field_ids=False))
            file.unlink()


def find_generator() -> str:
    """Return the generator's program: the one installed beside this Python, or one on the path.

    Raises:
        Refused: There is none.
    """
    found = shutil.which(GENERATOR, path=Path(sys.executable).parent) or shutil.which(GENERATOR)
    if found is None:
        raise Refused(Reason.CONFIGURATION, f"The demo needs {GENERATOR}: install icefleet[demo].")
    return found


#: The shares of the table's rows that each batch updates and deletes.
UPDATED = 0.004
DELETED = 0.001
#: The share of the rows that change at all, so that some change again and again.
_HOT = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """What one commit changes."""

    updated: int
    deleted: int
    delete_files: int


class Stream:
    """Writes to one table as a CDC stream does, and knows the rows that the table must hold.

    The same calls write the same rows on every machine.

    Args:
        table: An empty table.
        checksums: Whether to compute checksums, which needs DataFusion; else rows are only counted.
    """

    def __init__(self, table: StreamTable, *, checksums: bool = True) -> None:
        self.table = table
        #: The checksum of the rows that the table must hold, computed from what is written.
        self.truth = Checksum()
        self._checksum = Checksum.of if checksums else lambda rows: Checksum(len(rows))
        self._hot: pa.Table | None = None
        self._loaded = 0
        self._random = np.random.default_rng(6)

    def load(self, rows: pa.Table) -> None:
        """Append rows, as the initial snapshot of a source."""
        self.table.append(rows)
        self.truth += self._checksum(rows)
        hot = rows.take(self._pick(len(rows), int(len(rows) * _HOT)))
        self._hot = hot if self._hot is None else pa.concat_tables([self._hot, hot])
        self._loaded += len(rows)

    def change(self) -> Batch:
        """Commit one batch: equality deletes of all updated and deleted rows, and the new state of the updated ones."""
        assert self._hot is not None, "load rows first"
        updated, deleted = (max(1, int(self._loaded * share)) for share in (UPDATED, DELETED))
        picked = self._pick(len(self._hot), updated + deleted)
        old = self._hot.take(picked)
        new = self._update(old.slice(0, updated))
        deletes = self.table.write_equality_deletes(old.select(KEY), KEY)
        self.table.commit(RowDelta([*self.table.write_data(new), *deletes]))
        self.truth += self._checksum(new) - self._checksum(old)
        untouched = np.ones(len(self._hot), dtype=bool)
        untouched[picked] = False
        self._hot = pa.concat_tables([self._hot.filter(pa.array(untouched)), new])
        return Batch(len(new), len(old) - len(new), len(deletes))

    def _pick(self, of: int, count: int) -> np.ndarray:
        return self._random.choice(of, min(count, of), replace=False)

    def _update(self, rows: pa.Table) -> pa.Table:
        """Return rows with another discount and another receipt date."""
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
