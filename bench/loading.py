"""Loading of master tables with many files: written side by side, committed at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyiceberg.manifest import DataFileContent

from bench.files import live_files
from tasks.testing import RowDelta, StreamTable
from tasks.testing.checksum import Checksum

#: Name of the fact that :func:`changed` gives.
CHANGED = "changed_bytes"


def load(table: StreamTable, parts: Iterable[pa.Table]) -> Checksum:
    """Append parts, each as a file of each of its partitions, in one commit; the checksum of their rows."""

    def write(part: pa.Table) -> tuple[list, Checksum]:  # type: ignore[type-arg]
        return table.write_data(part), Checksum.of(part)

    files, truth = [], Checksum()
    with ThreadPoolExecutor(os.cpu_count()) as writers:
        for written, checksum in writers.map(write, parts):
            files += written
            truth += checksum
    table.commit(RowDelta(files))
    return truth
