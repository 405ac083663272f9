"""W0: one partition of plain files and a few equality delete files: conversion at its simplest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable, Recipe
from bench.sizes import Size
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

#: Of the recipe below.
_VERSION = 1
_Numbers: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]

#: The key columns that stand for a number, and a query that has to read them.
KINDS: Final[dict[str, tuple[Callable[[_Numbers], dict[str, pa.Array]], str]]] = {
    "int64": (lambda numbers: {"id": pa.array(numbers.astype(np.int64))}, "select sum(id) as s from {table}"),
    "string": (
        lambda numbers: {"user": pa.array(np.char.add("user-", np.char.zfill(numbers.astype(str), 12)))},
        "select max(substr(user, 6)) as s from {table}",
    ),
    "two-columns": (
        lambda numbers: {
            "a": pa.array((numbers // 1000).astype(np.int64)),
            "b": pa.array((numbers % 1000).astype(np.int64)),
        },
        "select sum(a + b) as s from {table}",
    ),
}


def recipe(kind: str, files: int, rows: int, deleted: int, delete_files: int) -> Recipe:
    """Files of keys in no order, each key once, of which so many are deleted."""
    columns = KINDS[kind][0]

    def make(catalog: Catalog) -> Iterator[GeneratedTable]:
        random = np.random.default_rng(20)
        numbers = random.permutation(np.arange(files * rows, dtype=np.uint32))
        deleted_numbers = random.choice(files * rows, deleted, replace=False).astype(np.uint32)
        names = list(columns(numbers[:1]))
        table = StreamTable.create(catalog, "bench.t", pa.table(columns(numbers[:1])).schema, format_version=2)
        truth, written = Checksum(), []
        for part in np.split(numbers, files):
            data = pa.table(columns(part))
            truth += Checksum.of(data)
            written += table.write_data(data)
        table.commit(RowDelta(written))
        written = []
        for part in np.array_split(deleted_numbers, delete_files):
            keys = pa.table(columns(part))
            truth -= Checksum.of(keys)
            written += table.write_equality_deletes(keys, names)
        table.commit(RowDelta(written))
        yield GeneratedTable(table, truth)

    return make


def _case(size: Size, name: str, kind: str, title: str, entries: Sequence[Entry], times: int = 1) -> Case:
    files, deleted = size.w0_files * times, size.w0_deleted * times
    return Case(
        name=name,
        title=title.format(files=files, rows=f"{size.w0_rows:,}", deleted=f"{deleted:,}"),
        master=f"w0-{kind}-{files}x{size.w0_rows}-{deleted}-in-{size.w0_delete_files}-v{_VERSION}",
        recipe=recipe(kind, files, size.w0_rows, deleted, size.w0_delete_files),
        entries=entries,
        query=KINDS[kind][1] if times == 1 else None,  # a reader would be stopped before and after it
    )


def _warm(deleted: int) -> Entry:
    found = {"added_position_deletes": deleted}
    return Entry(program="icefleet", ask={"do": "convert"}, expect=found, leaves={"equality_deletes": 0})


def _cold(deleted: int) -> Entry:
    found = {"added_position_deletes": deleted}
    return Entry(program="icefleet-cold", ask={"do": "convert"}, expect=found, leaves={"equality_deletes": 0})


def _scan(deleted: int) -> Entry:
    return Entry(program="arrow-scan", ask={"do": "scan"}, commits=False, expect={"positions": deleted})


def cases(size: Size) -> list[Case]:
    """Three kinds of key, and one of them at several times the size."""
    some, many = size.w0_deleted, size.w0_deleted * size.w0_times
    text = "{files} files × {rows} rows, {deleted} keys deleted"
    return [
        _case(size, "int64", "int64", f"an int64 key: {text}", [_warm(some), _cold(some), _scan(some)]),
        _case(size, "string", "string", f"a string key: {text}", [_warm(some), _scan(some)]),
        _case(size, "two-columns", "two-columns", f"a key of two columns: {text}", [_warm(some), _scan(some)]),
        _case(
            size, "large", "int64", f"{size.w0_times} times the size: {text}", [_warm(many), _scan(many)], size.w0_times
        ),
    ]


WORKLOAD = Workload(
    name="w0",
    title="W0: conversion at its simplest",
    about="One partition, equality deletes by key in a few files; beside it what the key columns' scan alone takes.",
    cases=cases,
)
