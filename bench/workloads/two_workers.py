"""Two workers beside one: whether a second machine does twice the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import GeneratedTable
from bench.loading import streamed_bytes
from bench.sizes import Size
from bench.workloads import w3

#: What is asked; how many MB a unit reads: a table of this size is to have several of them; and how many times as many
#: tables there are: it is about throughput, so the first plan and the last commit, which nobody shares, must be little.
_WORK: Final[Mapping[str, tuple[Mapping[str, Any], int, int]]] = {
    "convert": ({"do": "convert"}, 4, 2),
    "compact": ({"do": "compact", "options": {"delete-file-threshold": 1}}, 64, 1),
}


def recipe(tables: int, scale: float, batches: int, catalog: Catalog) -> Iterator[GeneratedTable]:
    """W3's table in buckets, several times over."""
    for number in range(tables):
        yield from w3.recipe(scale, batches, True, catalog, f"bench.lineitem_{number}")


def cases(size: Size) -> Sequence[Case]:
    """Conversion and compaction."""
    return [_case(size, name, size.two_tables * times, ask, unit_mb) for name, (ask, unit_mb, times) in _WORK.items()]


def _case(size: Size, name: str, tables: int, ask: Mapping[str, Any], unit_mb: int) -> Case:
    # No session is started anew in the middle of a run.
    environment = {"ICEFLEET_UNIT_MB": str(unit_mb), "ICEFLEET_RECYCLE_UNITS": "100000"}
    return Case(
        name=name,
        title=f"{name} {tables} tables of lineitem at scale {size.two_scale:g} in buckets, enqueued at once; each "
        "worker on one core",
        master=f"two-{tables}-{size.two_scale:g}-{size.two_batches}-1",
        recipe=partial(recipe, tables, size.two_scale, size.two_batches),
        entries=[
            Entry(
                program="icefleet-fleet",
                label=label,
                ask=ask,
                leaves={"equality_deletes": 0},
                arguments=("--workers", str(workers)),
                environment=environment,
            )
            for workers, label in ((1, "one worker"), (2, "two workers"))
        ],
        changed_bytes=streamed_bytes,
    )


WORKLOAD = Workload(
    name="two-workers",
    title="Two workers beside one",
    about="W3's table in buckets, several of them in a row through Redis. A committer plans and commits beside the "
    "workers, and on a machine of two cores takes its share of them.",
    cases=cases,
)
