"""What the workloads on lineitem have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bench.case import Entry
from tasks.demo.lineitem import QUERY_6

TABLE: Final = "bench.lineitem"
QUERY: Final = QUERY_6.replace("from lineitem", "from {table}")
#: Of every JVM: what an Icefleet worker gives itself on a machine of 12 GB or more.
HEAP_MB: Final = 4096
#: Iceberg's way to apply deletes: rewrite every data file that has one. Equality deletes that are as new as what it
#: wrote stay, which is its default, and the less work.
REWRITE: Final[Mapping[str, Any]] = {"do": "rewrite", "options": {"delete-file-threshold": "1"}}


def maintenance(heap_mb: int = HEAP_MB, *, limit: float = 900.0) -> list[Entry]:
    """Icefleet's two ways to be rid of deletes, and Iceberg's one: it converts no equality deletes."""
    return [
        Entry(
            program="icefleet",
            label="icefleet convert",
            ask={"do": "convert"},
            heap_mb=heap_mb,
            leaves={"equality_deletes": 0},
            limit=limit,
        ),
        Entry(
            program="icefleet",
            label="icefleet compact",
            ask={"do": "compact", "options": {"delete-file-threshold": 1}},
            heap_mb=heap_mb,
            leaves={"equality_deletes": 0, "position_deletes": 0},
            limit=limit,
        ),
        Entry(program="iceberg-spark", label="iceberg-spark rewrite", ask=REWRITE, heap_mb=heap_mb, limit=limit),
    ]
