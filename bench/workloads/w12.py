"""W12: a flood of deletes: half of all rows are deleted by key, in ever larger tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable
from bench.sizes import Size
from tasks.testing import RowDelta, StreamTable
from tasks.testing.reader import Checksum

#: Of the recipe below.
_VERSION: Final = 1
_DELETE_FILES: Final = 10
_ROWS_PER_FILE: Final = 1_000_000
_PREFIX: Final = b"key-"
_DIGITS: Final = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
#: Odd, so that different numbers make different keys, which lie anywhere.
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.uint64]


def _integers(numbers: Numbers) -> pa.Array:
    return pa.array((numbers * _MULTIPLIER).view(np.int64))


def _strings(numbers: Numbers) -> pa.Array:
    """Twenty bytes each: a prefix and sixteen digits."""
    mixed, width = numbers * _MULTIPLIER, len(_PREFIX) + 16
    texts = np.empty((numbers.size, width), dtype=np.uint8)
    texts[:, : len(_PREFIX)] = np.frombuffer(_PREFIX, dtype=np.uint8)
    for digit in range(16):
        texts[:, len(_PREFIX) + digit] = _DIGITS[(mixed >> np.uint64(60 - 4 * digit)) & np.uint64(15)]
    offsets = np.arange(numbers.size + 1, dtype=np.int32) * width
    return pa.StringArray.from_buffers(numbers.size, pa.py_buffer(offsets), pa.py_buffer(texts))


#: What a key is made of, by the name of its type.
KINDS: Final[dict[str, Callable[[Numbers], pa.Array]]] = {"int64": _integers, "string": _strings}


def recipe(kind: str, deleted: int, catalog: Catalog) -> Iterator[GeneratedTable]:
    """Twice as many rows as deleted keys, each key once and in no order; a file holds a million rows at most."""
    random = np.random.default_rng(12)
    rows = 2 * deleted
    numbers = random.permutation(np.arange(rows, dtype=np.uint32))
    deleted_numbers = random.permutation(np.arange(0, rows, 2, dtype=np.uint32))

    def keys(some: npt.NDArray[np.uint32]) -> pa.Table:
        return pa.table({"key": KINDS[kind](some.astype(np.uint64))})

    table = StreamTable.create(catalog, "bench.t", keys(numbers[:1]).schema, format_version=2)
    truth, written = Checksum(), []
    for part in np.array_split(numbers, max(2, rows // _ROWS_PER_FILE)):
        truth += Checksum.of(keys(part))
        written += table.write_data(keys(part))
    table.commit(RowDelta(written))
    written = []
    for part in np.array_split(deleted_numbers, _DELETE_FILES):
        truth -= Checksum.of(keys(part))
        written += table.write_equality_deletes(keys(part), ["key"])
    table.commit(RowDelta(written))
    yield GeneratedTable(table, truth)


def cases(size: Size) -> Sequence[Case]:
    """Each number of keys, in two widths; Iceberg's own procedure at the smallest number only."""
    return [
        Case(
            name=case_name(kind, deleted),
            title=f"{deleted:,} deleted keys ({kind}) in {2 * deleted:,} rows",
            master=f"w12-{kind}-{deleted}-v{_VERSION}",
            recipe=partial(recipe, kind, deleted),
            entries=_entries(deleted, with_peer=deleted == min(size.w12_deleted)),
        )
        for kind in KINDS
        for deleted in size.w12_deleted
    ]


def case_name(kind: str, deleted: int) -> str:
    """What the report calls a case."""
    return f"{kind} {deleted:,}"


def _entries(deleted: int, *, with_peer: bool) -> list[Entry]:
    found = {"added_position_deletes": deleted}
    own = Entry(program="icefleet", ask={"do": "convert"}, expect=found, leaves={"equality_deletes": 0})
    yardstick = Entry(program="arrow-join", ask={"do": "join"}, commits=False, expect={"rows": deleted})
    options = {"delete-file-threshold": "1"}
    peer = Entry(
        program="iceberg-spark",
        ask={"do": "rewrite", "options": options},
        heap_mb=4096,
        limit=300.0,
        runs=1,
        warmups=0,
    )
    return [own, yardstick, *([peer] if with_peer else [])]


WORKLOAD = Workload(
    name="w12",
    title="W12: a flood of deletes",
    about="Half of all rows are deleted by key, in one partition: deletes do not fit into the heap, and few rows can "
    "be left out early. Cost and memory must grow evenly. The yardstick reads keys and deletes and joins them.",
    cases=cases,
)
