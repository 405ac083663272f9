"""W1: small files put together, nothing deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from datafusion import SessionContext
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.catalog import RunTables
from bench.data import GeneratedTable
from bench.loading import load
from bench.sizes import Size
from bench.workloads.lineitem import HEAP_MB, QUERY, TABLE
from tasks.demo.lineitem import SCHEMA, generate
from tasks.testing import StreamTable
from tasks.testing.reader import Checksum

#: Where yardsticks write, in the folder that they are given.
COPY = "copy"
#: Iceberg's default.
_TARGET = 512 << 20


def recipe(scale: float, rows_per_file: int, catalog: Catalog) -> Iterable[GeneratedTable]:
    """Lineitem in files of so many rows, as appends leave it."""
    table = StreamTable.create(catalog, TABLE, SCHEMA)
    parts = max(1, round(scale * 4))
    yield GeneratedTable(table, load(table, generate(scale, parts), rows_per_file))


def cases(size: Size) -> Sequence[Case]:
    """Files of some 11 MB, and of some 1 MB."""
    return [
        _case("files of 11 MB", size, size.w1_rows, size.w1_scale),
        _case("files of 1 MB", size, size.w1_rows_of_small, size.w1_scale),
    ]


def _case(name: str, size: Size, rows: int, scale: float) -> Case:
    return Case(
        name=name,
        title=f"lineitem at scale {scale:g} in {name}, put together to the usual 512 MB",
        master=f"w1-{scale:g}-{rows}-1",
        recipe=partial(recipe, scale, rows),
        entries=[
            Entry(program="icefleet", ask={"do": "compact"}, heap_mb=HEAP_MB),
            Entry(program="iceberg-spark", ask={"do": "rewrite"}, heap_mb=HEAP_MB),
            Entry(program="plain-spark", ask=_files, heap_mb=HEAP_MB, commits=False, check=same_rows),
            Entry(program="arrow-copy", ask=_files, commits=False, check=same_rows),
        ],
        changed_bytes=lambda master: master.files.data_bytes,
        query=QUERY,
    )


def _files(run_tables: RunTables) -> Mapping[str, Any]:
    (table,) = run_tables.tables()
    files = [task.file for task in table.scan().plan_files()]
    paths = sorted(file.file_path.removeprefix("file://") for file in files)
    size = sum(file.file_size_in_bytes for file in files)
    return {"do": "copy", "files": paths, "bytes": size, "target_bytes": _TARGET, "folder": COPY}


def same_rows(run_tables: RunTables, facts: Mapping[str, Any]) -> str | None:
    """What is wrong with rows that were written beside the table."""
    context = SessionContext()
    context.register_parquet("copied", run_tables.output / COPY)
    (table,) = run_tables.master.tables
    found = Checksum.of_table(context, "copied", table.columns)
    return None if found == table.truth else f"it copied {found.rows:,} rows with checksum {found}, not {table.truth}"


WORKLOAD = Workload(
    name="w1",
    title="W1: bin-packing",
    about="A gigabyte of lineitem in small files, as appends leave them, becomes files of 512 MB. Beside it stand "
    "Iceberg's own procedure, plain Spark reading and writing the same bytes, and the yardstick: PyArrow alone.",
    cases=cases,
)
