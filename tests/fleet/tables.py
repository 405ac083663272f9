"""Tables as a stream leaves them, and what must hold for their files whatever happened to a fleet."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tasks.testing import StreamTable, read_rows
from tests.support.unreferenced import local_path, unreferenced

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", IntegerType(), required=True),
    NestedField(3, "note", StringType(), required=False),
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))

#: Random keys of this many rows are more than half a MB, so that with ICEFLEET_UNIT_MB=1 no unit gets two partitions.
ROWS_OF_A_UNIT = 66_000


def streamed(
    catalog: Catalog,
    name: str,
    *,
    partitions: int,
    rows: int = ROWS_OF_A_UNIT,
    files: int = 1,
    upserts: int = 2,
    format_version: int = 2,
    seed: int = 0,
    share: float = 0.01,
    **properties: str,
) -> StreamTable:
    """A table with rows in each partition, some of which were upserted and some deleted by key.

    Args:
        rows: Of each partition.
        share: Of them, in each of these steps.
        properties: Of the table.
        files: Data files of each partition before the upserts, which add one each.
        upserts: How many times; each leaves an equality delete file in every partition.
    """
    random = np.random.default_rng(seed)
    table = StreamTable.create(catalog, name, SCHEMA, spec=SPEC, format_version=format_version, properties=properties)
    parts = np.repeat(np.arange(partitions, dtype=np.int32), rows)
    # Distinct and without order, so that they do not compress; the partition follows from the key.
    ids = random.choice(1 << 40, size=rows * partitions, replace=False).astype(np.int64)
    for piece in np.array_split(random.permutation(len(ids)), files):
        table.append(_rows(ids[piece], parts[piece], "inserted"))
    some = max(int(rows * share), 2) * partitions
    for number in range(upserts):
        chosen = random.choice(len(ids), size=some, replace=False)
        table.upsert(_rows(ids[chosen], parts[chosen], f"upserted {number}"), ["id"])
    gone = random.choice(len(ids), size=some, replace=False)
    table.delete_where_equal(pa.table({"id": ids[gone], "part": parts[gone]}), ["id"])
    return table


def inserted(catalog: Catalog, name: str) -> StreamTable:
    """A small table without deletes, unless there is one of that name."""
    if catalog.table_exists(name):
        return StreamTable(catalog, name)
    table = StreamTable.create(catalog, name, SCHEMA, spec=SPEC)
    table.append(_rows(np.arange(10), np.zeros(10, dtype=np.int32), "inserted"))
    return table


def _rows(ids: np.ndarray, parts: np.ndarray, note: str) -> pa.Table:
    return pa.table({"id": ids, "part": parts, "note": pa.array([note] * len(ids))})


def rows_of(table: Table, snapshot_id: int | None = None) -> pa.Table:
    """All rows in one order, as iceberg-rust reads them, now or at another snapshot."""
    return (
        read_rows(table, snapshot_id).sort_by([(name, "ascending") for name in ("id", "part", "note")]).combine_chunks()
    )


def equality_deletes(table: StreamTable) -> int:
    """How many equality delete files are live."""
    return sum(file.content == DataFileContent.EQUALITY_DELETES for file in table.delete_files())


def snapshots_of(table: Table, job: str) -> list[int]:
    """The snapshots that a job has made."""
    return [s.snapshot_id for s in table.metadata.snapshots if s.summary and s.summary["icefleet.job-id"] == job]


def left_behind(table: Table) -> list[str]:
    """Return the files below the table's location that no snapshot refers to and that are no table metadata either."""
    root = local_path(table, table.metadata.location)
    found = (path for path in unreferenced(table, metadata_files=False, deleted=True) if os.path.isfile(path))
    return sorted(os.path.relpath(path, root) for path in found)


def metadata_files(table: Table) -> set[str]:
    """The names of all metadata files, of any version."""
    root = Path(table.metadata.location.removeprefix("file://"))
    return {path.name for path in (root / "metadata").iterdir()}


@contextmanager
def stuck(table: StreamTable, partition: int = 0, *, newest: bool = False) -> Iterator[None]:
    """A partition of which a data file keeps its readers waiting for ever: a named pipe lies in its place.

    Args:
        newest: The data file that came last; else the first that is found.
    """
    files = [f for f in table.data_files() if f.partition[0] == partition]
    chosen = max(files, key=lambda file: file.sequence_number) if newest else files[0]
    path = chosen.path.removeprefix("file://")
    aside = f"{path}.aside"
    os.rename(path, aside)
    os.mkfifo(path)
    try:
        yield
    finally:
        os.replace(aside, path)
