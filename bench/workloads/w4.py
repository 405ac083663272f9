"""W4: a flood of small deletes, each of which brings its rows back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil

import numpy as np
import numpy.typing as npt
from pyiceberg.catalog import Catalog

from bench.case import Case, Workload
from bench.data import GeneratedTable
from bench.lineitem import Lineitem
from bench.loading import load, loaded, streamed_bytes
from bench.sizes import Size
from bench.workloads.lineitem import QUERY, TABLE, maintenance
from tasks.demo.lineitem import KEY, SCHEMA
from tasks.testing import StreamTable

_FILES = 8
#: One row in so many is deleted and inserted again.
_ONE_IN = 50


def recipe(scale: float, commits: int, catalog: Catalog) -> Iterable[GeneratedTable]:
    """Lineitem, and upserts of rows as they are: what the table holds does not change."""
    lineitem = Lineitem(scale, seed=4)
    table = StreamTable.create(catalog, TABLE, SCHEMA)
    truth = load(table, [lineitem.loaded], ceil(len(lineitem) / _FILES))
    facts = loaded(table)
    for numbers in np.array_split(_by_hash(lineitem), commits):
        table.upsert(lineitem.rows(numbers), KEY)
    yield GeneratedTable(table, truth, facts)


def _by_hash(lineitem: Lineitem) -> npt.NDArray[np.int64]:
    """Numbers of the rows whose key hashes to a multiple of :data:`_ONE_IN`, in the order of their hashes."""
    order, line = (lineitem.loaded[name].to_numpy().astype(np.uint64) for name in KEY)
    hashes = (order * np.uint64(8) + line) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)
    (chosen,) = np.nonzero(hashes % np.uint64(_ONE_IN) == 0)
    return chosen[np.argsort(hashes[chosen], kind="stable")].astype(np.int64)


def cases(size: Size) -> Sequence[Case]:
    """One table."""
    return [
        Case(
            name=f"{size.w4_commits} commits",
            title=f"lineitem at scale {size.w4_scale:g}, 2 % deleted and inserted again by {size.w4_commits} commits",
            master=f"w4-{size.w4_scale:g}-{size.w4_commits}-1",
            recipe=partial(recipe, size.w4_scale, size.w4_commits),
            entries=maintenance(limit=1200.0),
            changed_bytes=streamed_bytes,
            query=QUERY,
        )
    ]


WORKLOAD = Workload(
    name="w4",
    title="W4: a flood of deletes",
    about="A thousand equality delete files, each with a data file that brings the rows back unchanged: "
    "the checksum of the table must not move.",
    cases=cases,
)
