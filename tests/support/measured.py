"""A conversion in a process of its own whose memory is watched: ``python -m tests.support.measured``.

Prints one JSON object: new positions, seconds, and the highest proportional set size of the process and its children.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import LongType

from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes, KeyColumn
from workers.model.units import ConversionUnit
from workers.operations.convert import convert
from workers.runtime import session
from workers.runtime.machine import Budget

_ID = {"PARQUET:field_id": "1"}


def unit(folder: Path, keys: int, rows: int, files: int, version: int) -> ConversionUnit:
    """Deletes of ``keys`` distinct numbers in ``files`` files, and as many data files of ``rows`` rows in all.

    Every tenth row is deleted; the numbers come in no order.
    """
    schema = pa.schema([pa.field("id", pa.int64(), metadata=_ID)])

    def write(name: str, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> ContentFile:
        path = folder / f"{name}.parquet"
        table = pa.Table.from_arrays([pa.array(numbers)], schema=schema)
        pq.write_table(table, path, row_group_size=250_000, compression="zstd", use_dictionary=False)
        kind, _, number = name.partition("-")
        sequence_number = 2 if kind == "delete" else 1
        return ContentFile(int(number), str(path), sequence_number, 0, len(numbers), path.stat().st_size)

    random = np.random.default_rng(7)
    deletes = [write(f"delete-{n}", random.permutation(np.arange(n, keys, files)) * 10) for n in range(files)]
    data = [write(f"data-{n}", random.permutation(np.arange(n, rows, files))) for n in range(files)]
    return ConversionUnit(
        name="measured",
        format_version=version,
        deletes=DeleteSet(
            data_files=tuple(data),
            equality=(EqualityDeletes((KeyColumn(1, LongType()),), True, tuple(deletes)),),
            positions=(),
            name_mapping=None,
        ),
        destinations=tuple(str(folder / f"{file.index}-deletes.parquet") for file in data),
        puffin_destination=str(folder / "{task}.puffin"),
        properties={},
    )


def watched() -> tuple[list[int], threading.Event]:
    """Start to look at this process and its children; the list has the peak in bytes, and that without mapped files.

    Pages of files that are mapped, as scratch is, go whenever the system wants the memory.
    """
    peak, stop, here = [0, 0], threading.Event(), psutil.Process()

    def look() -> None:
        while not stop.wait(0.05):
            total = anonymous = 0
            for process in (here, *here.children(recursive=True)):
                try:
                    rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
                except OSError:  # it has ended
                    continue
                total += _kilobytes(rollup, "Pss") * 1024
                anonymous += _kilobytes(rollup, "Pss_Anon") * 1024
            peak[:] = max(peak[0], total), max(peak[1], anonymous)

    threading.Thread(target=look, daemon=True).start()
    return peak, stop


def _kilobytes(rollup: str, field: str) -> int:
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(f"{field}:"))


def main(keys: int, rows: int, heap_mb: int, index_mb: int, version: int, warm: int) -> None:
    """Measure a conversion: with a session that has run tasks before, or else with what makes one when it is needed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = unit(folder, keys, rows, 4, version)
        budget = Budget(2, heap_mb << 20, (heap_mb << 20) // 16, 32 << 20, 64 << 20, index_mb << 20)
        scratch = folder / "scratch"
        scratch.mkdir()
        if warm:
            session.warm(budget)
        source = session.session(budget) if warm else partial(session.session, budget)
        peak, stop = watched()
        started = time.perf_counter()
        result = convert(work, PyArrowFileIO(), source, budget, scratch)
        stop.set()
        session.close()
        seconds = round(time.perf_counter() - started, 1)
        print(json.dumps({"positions": result.new_positions, "seconds": seconds, "peak": peak[0]}))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
