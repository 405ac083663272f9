"""Loading of master tables with many files: written side by side, committed at once."""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from bench.data import Master
from bench.files import Files
from producer.iceberg.manifest_entry import NewFile
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

_LOADED = "loaded_bytes"


def load(table: StreamTable, parts: Iterable[pa.Table], rows_per_file: int) -> Checksum:
    """Append rows in files of a given length, one set of slices for each part; the checksum of all.

    Args:
        parts: one is in memory at a time. In a partitioned table each slice becomes a file of each partition.
    """

    def write(rows: pa.Table) -> tuple[list[NewFile], Checksum]:
        return table.write_data(rows), Checksum.of(rows)

    files: list[NewFile] = []
    truth = Checksum()
    with ThreadPoolExecutor(os.cpu_count()) as writers:
        for part in parts:
            slices = [part.slice(start, rows_per_file) for start in range(0, len(part), rows_per_file)]
            for written, checksum in writers.map(write, slices):
                files += written
                truth += checksum
    table.commit(RowDelta(files))
    return truth


def loaded(table: StreamTable) -> dict[str, int]:
    """The fact by which :func:`streamed_bytes` knows what came later; to be taken right after loading."""
    return {_LOADED: Files.of(table.table).data_bytes}


def streamed_bytes(master: Master) -> int:
    """Bytes of live files, data and deletes, that came into the tables after they were loaded."""
    before = sum(int(table.facts[_LOADED]) for table in master.tables)
    return master.files.data_bytes + master.files.delete_bytes - before
