"""The yardstick of large deletes: PyArrow reads the key columns and the deletes, and makes a semi join of them.

All of it is in memory and on all threads. It counts the rows that are deleted and writes nothing. It relies on what
W12's tables have: one partition, deletes that are newer than all data, no nulls.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFileContent
from pyiceberg.table import StaticTable

from bench.files import live_files
from bench.peers.serving import claim_stdout, serve


def join(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Count the rows that a table's equality deletes remove."""
    table = StaticTable.from_metadata(asked["metadata_locations"][0])
    files: dict[DataFileContent, list[str]] = {content: [] for content in DataFileContent}
    names: list[str] = []
    for file in live_files(table):
        files[file.content].append(file.path.removeprefix("file://"))
        names = names or [table.schema().find_column_name(number) or "" for number in file.equality_ids]

    def read(content: DataFileContent) -> pa.Table:
        return pa.concat_tables(pq.read_table(path, columns=names) for path in files[content])

    deletes = read(DataFileContent.EQUALITY_DELETES)
    return {"rows": len(read(DataFileContent.DATA).join(deletes, names, join_type="left semi"))}


if __name__ == "__main__":
    pa.set_cpu_count(len(os.sched_getaffinity(0)))
    serve(claim_stdout(), {"join": join}, {"pyarrow": pa.__version__})
