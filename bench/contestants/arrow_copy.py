"""The yardstick of compaction: PyArrow reads Parquet files and writes their rows again, knowing nothing of tables.

One process a core (threads were some 5 % slower), each with a share of the files: read whole, gathered to row groups of
a million rows, written with zstd. Nothing is counted, checked or committed.

    {"do": "copy", "files": ["/path", …], "bytes": 1073741824, "target_bytes": 536870912,
     "output": "file:///…", "folder": "copy"}
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.peers.serving import claim_stdout, serve

#: Rows.
_GROUP = 1_000_000


def copy(pool: ProcessPoolExecutor, cores: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Copy files into as many as the target size asks for, at least one for each core."""
    outputs = max(cores, ceil(asked["bytes"] / asked["target_bytes"]))
    folder = Path(asked["output"].removeprefix("file://")) / asked["folder"]
    folder.mkdir()
    files = asked["files"]
    shares = [files[number * len(files) // outputs : (number + 1) * len(files) // outputs] for number in range(outputs)]
    paths = [f"{folder}/{number}.parquet" for number in range(outputs)]
    return {"files": outputs, "copied_rows": sum(pool.map(_copy, shares, paths))}


def _copy(files: Sequence[str], path: str) -> int:
    waiting: list[pa.Table] = []
    written = 0
    with pq.ParquetWriter(
        path, pq.read_schema(files[0]), compression="zstd", store_decimal_as_integer=True, store_schema=False
    ) as writer:
        for file in files:
            waiting.append(pq.ParquetFile(file, memory_map=True).read(use_threads=False))
            if sum(map(len, waiting)) >= _GROUP:
                rows = pa.concat_tables(waiting)
                writer.write_table(rows.slice(0, _GROUP), row_group_size=_GROUP)
                written += _GROUP
                waiting = [rows.slice(_GROUP)]
        rows = pa.concat_tables(waiting)
        writer.write_table(rows, row_group_size=_GROUP)
    return written + len(rows)


def _warm() -> None:
    """Import what copying needs."""


if __name__ == "__main__":
    answers = claim_stdout()
    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for started in [pool.submit(_warm) for _ in range(cores)]:
            started.result()
        serve(answers, {"copy": partial(copy, pool, cores)}, {"pyarrow": pa.__version__})
