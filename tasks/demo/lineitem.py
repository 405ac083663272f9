"""TPC-H's table lineitem: its schema, its rows and its query 6."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, DecimalType, IcebergType, IntegerType, LongType, NestedField, StringType

from producer.common.errors import Failed, Reason, Refused

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
    """The rows in parts of about the same size, one in memory at a time; the same on every machine.

    Args:
        scale: TPC-H's scale factor: 1 is 6 million rows.

    Raises:
        Refused: the generator is not installed.
        Failed: it could not generate them.
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
    """The generator's program: the one installed beside this Python, or one on the path.

    Raises:
        Refused: there is none.
    """
    found = shutil.which(GENERATOR, path=Path(sys.executable).parent) or shutil.which(GENERATOR)
    if found is None:
        raise Refused(Reason.CONFIGURATION, f"The demo needs {GENERATOR}: install icefleet[demo].")
    return found
