"""W3: change data capture on lineitem, unpartitioned and in buckets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from math import ceil

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from bench.case import Case, Workload
from bench.data import GeneratedTable
from bench.lineitem import Lineitem
from bench.loading import load, loaded, streamed_bytes
from bench.sizes import Size
from bench.workloads.lineitem import QUERY, TABLE, maintenance
from tasks.demo.lineitem import BUCKETS, KEY, SCHEMA, SPEC
from tasks.testing import StreamTable

SEED = 3
#: Of the rows: batches of the two sizes come in turns.
_SHARES = (0.000112, 0.01)
#: When the table is loaded, of each partition.
_FILES = 2


def share_of(batch: int) -> float:
    """Of the rows, that a batch of the stream updates, counted from 0."""
    return _SHARES[batch % len(_SHARES)]


def recipe(scale: float, batches: int, bucketed: bool, catalog: Catalog, name: str = TABLE) -> Iterable[GeneratedTable]:
    """Lineitem, and batches of upserts: one data file and one equality delete file each in every partition."""
    lineitem = Lineitem(scale, SEED)
    table = StreamTable.create(catalog, name, SCHEMA, spec=SPEC if bucketed else UNPARTITIONED_PARTITION_SPEC)
    files = _FILES if bucketed else _FILES * 4
    truth = load(table, [lineitem.loaded], ceil(len(lineitem) / files))
    facts = loaded(table)
    for number in range(batches):
        update = lineitem.update(share_of(number))
        table.upsert(update.new, KEY)
        truth += update.difference
    yield GeneratedTable(table, truth, facts)


def master_name(size: Size, bucketed: bool) -> str:
    """Of the table that :func:`recipe` makes."""
    return f"w3-{size.w3_scale:g}-{size.w3_batches}-{'buckets' if bucketed else 'plain'}-1"


def cases(size: Size) -> Sequence[Case]:
    """Without partitions, and with buckets of the key."""
    return [
        Case(
            name=name,
            title=f"lineitem at scale {size.w3_scale:g}, {name}, after {size.w3_batches} batches of updates",
            master=master_name(size, bucketed),
            recipe=partial(recipe, size.w3_scale, size.w3_batches, bucketed),
            entries=maintenance(),
            changed_bytes=streamed_bytes,
            query=QUERY,
        )
        for name, bucketed in (("unpartitioned", False), (f"{BUCKETS} buckets", True))
    ]


WORKLOAD = Workload(
    name="w3",
    title="W3: change data capture",
    about="Lineitem, and a stream that updates 0.0112 % and 1 % of its rows in turns: each batch is one data file and "
    "one equality delete file in every partition. Iceberg's procedure has one way to apply them: to rewrite files.",
    cases=cases,
)
