"""A compaction in a process of its own whose memory is watched: ``python -m tests.support.measuredrewrite``.

Prints one JSON object: rows, seconds, and the highest proportional set size of the process and its children.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import LongType, NestedField, StringType

from producer.model.plan import Scope
from tests.support.measured import watched
from workers.arrow.schema import arrow_schema
from workers.model.delete_set import ContentFile, DeleteSet
from workers.model.units import RewriteUnit, Sizes
from workers.operations.rewrite import rewrite
from workers.runtime import session
from workers.runtime.machine import Budget

MB = 1 << 20
SCHEMA = Schema(
    *(NestedField(n, f"n{n}", LongType(), required=False) for n in range(1, 6)),
    NestedField(6, "text", StringType(), required=False),
)


def unit(folder: Path, rows: int) -> RewriteUnit:
    """One data file of so many rows in row groups of 100,000, to be split into files of 16 MB."""
    schema = arrow_schema(SCHEMA)
    path, random = folder / "data.parquet", np.random.default_rng(7)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, 100_000):
            size = min(100_000, rows - start)
            numbers = [pa.array(random.integers(0, 1 << 40, size)) for _ in range(5)]
            texts = pa.array([f"text {n}" for n in range(size)])
            writer.write_table(pa.Table.from_arrays([*numbers, texts], schema=schema))
    return RewriteUnit(
        name="measured",
        deletes=DeleteSet((ContentFile(0, str(path), 1, 0, rows, path.stat().st_size),), (), (), None),
        schema=SCHEMA,
        lineage=False,
        spec=UNPARTITIONED_PARTITION_SPEC,
        scopes=(Scope(spec_id=0, values=(), label=""),),
        sizes=Sizes(16 * MB, 12 * MB, 28 * MB),
        location=load_location_provider(f"file://{folder}", {}),
        journal=f"file://{folder}/journal",
        properties={},
    )


def main(rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = unit(folder, rows)
        budget = Budget(2, 512 * MB, 32 * MB, 8 * MB, rows_bytes=16 * MB, index_bytes=8 * MB)
        scratch = folder / "scratch"
        scratch.mkdir()
        peak, stop = watched()
        started = time.perf_counter()
        result = rewrite(work, PyArrowFileIO(), session.session(budget), budget, scratch)
        stop.set()
        session.close()
        seconds = round(time.perf_counter() - started, 1)
        written = sum(file.records for file in result.files)
        print(json.dumps({"rows": written, "files": len(result.files), "seconds": seconds, "peak": peak[0]}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
