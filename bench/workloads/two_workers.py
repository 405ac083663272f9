"""Two workers beside one: whether a second machine does twice the work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog

from bench.case import Case, Entry, Workload
from bench.data import Made
from bench.loading import streamed_bytes
from bench.sizes import Size
from bench.workloads import w3

#: What is asked, and how many MB a unit reads: a table of this size is to have several of them.
_WORK: Final[Mapping[str, tuple[Mapping[str, Any], int]]] = {
    "convert": ({"do": "convert"}, 4),
    "compact": ({"do": "compact", "options": {"delete-file-threshold": 1}}, 64),
}


def recipe(tables: int, scale: float, batches: int, catalog: Catalog) -> Iterator[Made]:
    """W3's table in buckets, several times over."""
    for number in range(tables):
        yield from w3.recipe(scale, batches, True, catalog, f"bench.lineitem_{number}")


def cases(size: Size) -> Sequence[Case]:
    """Conversion and compaction."""
    made = partial(recipe, size.two_tables, size.two_scale, size.two_batches)
    return [
        Case(
            name=name,
            title=f"{name} {size.two_tables} tables of lineitem at scale {size.two_scale:g} in buckets, enqueued at "
            "once; each worker on one core",
            master=f"two-{size.two_tables}-{size.two_scale:g}-{size.two_batches}-1",
            recipe=made,
            entries=[
                Entry(
                    program="icefleet-fleet",
                    label=label,
                    ask=ask,
                    leaves={"equality_deletes": 0},
                    arguments=("--workers", str(workers)),
                    environment={"ICEFLEET_UNIT_MB": str(unit_mb)},
                )
                for workers, label in ((1, "one worker"), (2, "two workers"))
            ],
            changed_bytes=streamed_bytes,
        )
        for name, (ask, unit_mb) in _WORK.items()
    ]


WORKLOAD = Workload(
    name="two-workers",
    title="Two workers beside one",
    about="W3's table in buckets, several of them in a row through Redis. A committer plans and commits beside the "
    "workers, and on a machine of two cores takes its share of them.",
    cases=cases,
)
