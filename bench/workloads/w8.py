"""W8: an object store whose every request takes long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from bench.case import Case, Entry, Workload
from bench.data import Master, Recipe
from bench.loading import streamed_bytes
from bench.place import BYTES_PER_SECOND, LATENCY_SECONDS, SLOW, Where
from bench.sizes import Size
from bench.workloads import planning, small_tables, w1, w2, w3
from bench.workloads.lineitem import HEAP_MB, REWRITE
from tasks.demo.lineitem import BUCKETS

_CONVERT: Final[Mapping[str, Any]] = {"do": "convert"}
_COMPACT: Final[Mapping[str, Any]] = {"do": "compact", "options": {"delete-file-threshold": 1}}


def cases(size: Size) -> Sequence[Case]:
    """Tables of other workloads, on the local disk and on the store."""
    checkpoints = size.w2_checkpoints[-1]
    return [
        _case(
            "files of 1 MB",
            f"lineitem at scale {size.w1_scale:g} in files of 1 MB, put together to the usual 512 MB",
            f"w1-{size.w1_scale:g}-{size.w1_rows_of_small}-1",
            partial(w1.recipe, size.w1_scale, size.w1_rows_of_small),
            [_entry("compact", {"do": "compact"})],
            {"do": "rewrite"},
        ),
        _case(
            f"{BUCKETS} buckets",
            f"lineitem at scale {size.w3_scale:g}, {BUCKETS} buckets, after {size.w3_batches} batches of updates",
            w3.master_name(size, bucketed=True),
            partial(w3.recipe, size.w3_scale, size.w3_batches, True),
            _both_operations(),
            REWRITE,
            changed_bytes=streamed_bytes,
        ),
        _case(
            "checkpoints",
            f"{checkpoints:,} data files of {size.w2_rows:,} rows, and as many delete files of either kind",
            f"w2-{checkpoints}x{size.w2_rows}-1",
            partial(w2.recipe, checkpoints, size.w2_rows),
            _both_operations(),
            REWRITE,
            limit=size.w2_seconds,
        ),
        *(
            replace(_in_both_places(case), name="small tables")
            for case in small_tables.cases(replace(size, small_tables=size.w8_small_tables))
        ),
        *(_in_both_places(_only_planned(case)) for case in planning.cases(size)),
    ]


def _case(
    name: str,
    title: str,
    master: str,
    recipe: Recipe,
    entries: Sequence[Entry],
    rewrite: Mapping[str, Any],
    *,
    limit: float = 900.0,
    changed_bytes: Callable[[Master], int] = lambda master: master.files.delete_bytes,
) -> Case:
    """Return a case of Icefleet's entries in both places, and Iceberg's procedure on the store."""
    peer = Entry(
        program="iceberg-spark",
        label=f"iceberg-spark rewrite{SLOW}",
        ask=rewrite,
        heap_mb=HEAP_MB,
        where=Where.STORE,
        limit=limit,
        runs=1,
        warmups=0,
    )
    case = Case(name=name, title=title, master=master, recipe=recipe, entries=entries, changed_bytes=changed_bytes)
    both = _in_both_places(case)
    return replace(both, entries=[*both.entries, peer])


def _both_operations() -> list[Entry]:
    return [
        _entry("convert", _CONVERT, equality_deletes=0),
        _entry("compact", _COMPACT, equality_deletes=0, position_deletes=0),
    ]


def _entry(name: str, ask: Mapping[str, Any], **leaves: int) -> Entry:
    return Entry(program="icefleet", label=f"icefleet {name}", ask=ask, leaves=leaves)


def _in_both_places(case: Case) -> Case:
    """Return a case whose entries work on the disk, and again on the store."""
    entries = [
        placed
        for entry in case.entries
        for placed in (entry, replace(entry, label=f"{entry.name}{SLOW}", where=Where.STORE))
    ]
    return replace(case, entries=entries)


def _only_planned(case: Case) -> Case:
    entries = [replace(entry, ask={"do": "plan"}, commits=False, check=None, leaves={}) for entry in case.entries]
    return replace(case, name="planning", entries=entries)


WORKLOAD = Workload(
    name="w8",
    title="W8: an object store with latency",
    about="Tables of W1, W3, W2, small tables and planning on an S3 server (versitygw), behind a proxy that delays the "
    f"first byte of each answer by {LATENCY_SECONDS * 1000:.0f} ms and limits each connection to "
    f"{BYTES_PER_SECOND / 1e6:.0f} MB/s; beside them the same on the local disk, and Iceberg's procedure with its "
    "S3FileIO on the same store, in one run. The server and the proxy share the machine's cores with what they serve.",
    cases=cases,
)
