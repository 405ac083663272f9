"""Work on files that unfold, in a process of its own whose memory is watched: ``python -m tests.support.measuredwide``.

Ten strings of 8 to 20 KB come again and again, so that some hundred kilobytes of Parquet are gigabytes of rows. Prints
one JSON object: rows written or positions found, seconds, the bytes of the files that are read, the most that scratch
held, and the highest proportional set size of the process and its children.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
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

from producer.model.plan import PositionDeleteFile, Scope, SortKey, Strategy
from tests.support.measured import watched
from workers.arrow.schema import arrow_schema
from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes, KeyColumn
from workers.model.units import ConversionUnit, RewriteUnit, Sizes
from workers.operations.convert import convert
from workers.operations.rewrite import rewrite
from workers.runtime import session
from workers.runtime.machine import Budget

MB = 1 << 20
SCHEMA = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "text", StringType(), required=False))
COMPACTIONS = ("binpack", "sort", "zorder")
TEXTS = pa.array([chr(97 + n) * (8_000 + 1_300 * n) for n in range(10)])


def texts(rows: int) -> pa.DictionaryArray:
    """The ten strings in turn."""
    return pa.DictionaryArray.from_arrays(pa.array((np.arange(rows) % len(TEXTS)).astype(np.int32)), TEXTS)


def file(path: Path, rows: int, column: pa.Array) -> int:
    """Write numbers that come in no order, and the column; returns bytes."""
    numbers = pa.array(np.random.default_rng(7).permutation(rows))
    pq.write_table(
        pa.Table.from_arrays([numbers, column], schema=_stored()), path, store_schema=False, compression="zstd"
    )
    return path.stat().st_size


def _stored() -> pa.Schema:
    number, text = arrow_schema(SCHEMA)
    return pa.schema([number, pa.field("text", pa.dictionary(pa.int32(), pa.string()), metadata=text.metadata)])


def compaction(folder: Path, rows: int, kind: str) -> RewriteUnit:
    """One data file, rewritten as it is, sorted by the strings and the numbers, or along a curve of both."""
    size = file(folder / "data.parquet", rows, texts(rows))
    order = tuple(
        SortKey(field_id=field_id, transform="identity", descending=False, nulls_first=True) for field_id in (2, 1)
    )
    return RewriteUnit(
        name="measured",
        deletes=DeleteSet((ContentFile(0, str(folder / "data.parquet"), 1, 0, rows, size),), (), (), None),
        schema=SCHEMA,
        lineage=False,
        spec=UNPARTITIONED_PARTITION_SPEC,
        scopes=(Scope(spec_id=0, values=(), label=""),),
        sizes=Sizes(128 * MB, 96 * MB, 230 * MB),
        location=load_location_provider(f"file://{folder}", {}),
        journal=f"file://{folder}/journal",
        properties={},
        strategy={"binpack": Strategy.BINPACK, "sort": Strategy.SORT, "zorder": Strategy.ZORDER}[kind],
        order=order if kind == "sort" else (),
        zorder=(2, 1) if kind == "zorder" else (),
    )


def conversion(folder: Path, rows: int, kind: str) -> ConversionUnit:
    """Long keys in the data, one of ten of which is deleted; in the deletes; or long paths in position deletes."""
    data, delete = folder / "data.parquet", folder / "delete.parquet"
    positions: tuple[PositionDeleteFile, ...] = ()
    if kind == "paths":
        count = rows
        path = pa.DictionaryArray.from_arrays(
            pa.array((np.arange(rows) * 10 // rows).astype(np.int32)),
            pa.array([f"{folder}/{text}" for text in TEXTS.to_pylist()]),
        )
        ids = [{"PARQUET:field_id": str(number)} for number in (2147483546, 2147483545)]
        schema = pa.schema(
            [pa.field("file_path", path.type, metadata=ids[0]), pa.field("pos", pa.int64(), metadata=ids[1])]
        )
        pq.write_table(
            pa.Table.from_arrays([path, pa.array(np.arange(rows))], schema=schema), delete, store_schema=False
        )
        positions = (PositionDeleteFile(path=str(delete), sequence_number=3, scope=0, referenced=None),)
        file(data, count, pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array(["a"])))
        again = folder / "again.parquet"
        pq.write_table(pa.table([pa.array([5])], schema=pa.schema([arrow_schema(SCHEMA).field(0)])), again)
        keys, file_of_keys, deleted = (KeyColumn(1, LongType()),), again, 1
    else:
        count, deleted = (rows, 1) if kind == "data-keys" else (1_000, rows)
        file(data, count, texts(count))
        some = TEXTS.slice(3, 1).dictionary_encode() if kind == "data-keys" else texts(rows)
        file(delete, deleted, some)
        keys, file_of_keys = (KeyColumn(2, StringType()),), delete
    delete_file = ContentFile(0, str(file_of_keys), 2, 0, deleted, file_of_keys.stat().st_size)
    return ConversionUnit(
        name="measured",
        format_version=2,
        deletes=DeleteSet(
            data_files=(ContentFile(0, str(data), 1, 0, count, data.stat().st_size),),
            equality=(EqualityDeletes(keys, True, (delete_file,)),),
            positions=positions,
            name_mapping=None,
        ),
        destinations=(str(folder / "0-deletes.parquet"),),
        puffin_destination=str(folder / "{task}.puffin"),
        properties={},
    )


def filled(folder: Path) -> list[int]:
    """Start to look at what a folder holds; the list's one number is the most in bytes."""
    most = [0]

    def look() -> None:
        while True:
            found = 0
            for path in folder.rglob("*"):
                try:
                    found += path.stat().st_size
                except OSError:
                    continue
            most[0] = max(most[0], found)
            time.sleep(0.05)

    threading.Thread(target=look, daemon=True).start()
    return most


def main(kind: str, rows: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        budget = Budget(2, 512 * MB, 32 * MB, 8 * MB, rows_bytes=64 * MB, index_bytes=256 * MB)
        scratch = folder / "scratch"
        scratch.mkdir()
        work = compaction(folder, rows, kind) if kind in COMPACTIONS else conversion(folder, rows, kind)
        read = sum(path.stat().st_size for path in folder.glob("*.parquet"))
        held = filled(scratch)
        peak, stop = watched()
        started = time.perf_counter()
        io, spark = PyArrowFileIO(), lambda: session.session(budget)
        if isinstance(work, RewriteUnit):
            count = sum(file.records for file in rewrite(work, io, spark, budget, scratch).files)
        else:
            count = convert(work, io, spark, budget, scratch).new_positions
        stop.set()
        session.close()
        seconds = round(time.perf_counter() - started, 1)
        found = {"count": count, "seconds": seconds, "read": read, "scratch": held[0]}
        found |= {"peak": peak[0], "anonymous": peak[1]}
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
