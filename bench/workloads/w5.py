"""W5: lineitem in buckets, while the stream goes on."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from pyiceberg.table import Table

from bench.case import Case, Entry, Workload
from bench.catalog import NAME, RunTables
from bench.contestant import Contestant
from bench.loading import streamed_bytes
from bench.sizes import Size
from bench.workloads.lineitem import maintenance
from bench.workloads.w3 import master_name, recipe
from tasks.demo.lineitem import BUCKETS
from tasks.testing.reader import Checksum

#: Seconds for the writer to end the commit that is on its way.
_STOP = 60.0
_ROUND = "icefleet.round"


@dataclass
class Stream:
    """The writer beside one run, and the rows that it has changed."""

    run_tables: RunTables
    commits: int = 0
    difference: Checksum = field(default_factory=Checksum)

    def truths(self) -> Sequence[Checksum]:
        """Of the table: what it was made with, and what the writer changed."""
        (table,) = self.run_tables.master.tables
        return [table.truth + self.difference]

    def summary(self, facts: Mapping[str, Any]) -> str:
        """Return how many jobs committed, failed, or found nothing to do, and how long they took."""
        jobs = facts["jobs"]
        ends = Counter(job["end"] for job in jobs)
        times = [job["seconds"] for job in jobs if job["end"] == "committed"]
        (table,) = self.run_tables.tables()
        parts = [
            f"{ends['committed']} jobs committed",
            f"{ends['failed']} failed",
            f"{ends['idle']} found nothing to do",
        ]
        if again := _planned_again(table):
            parts.append(f"{again} planned units again after conflicts")
        if times:
            parts.append(f"{median(times):.1f} s each in the median, {max(times):.1f} s at most")
        errors = sorted({job["error"] for job in jobs if "error" in job})
        return f"{self.commits} commits of the stream; {', '.join(parts)}" + "".join(f"; {error}" for error in errors)


def _planned_again(table: Table) -> int:
    """Snapshots of Icefleet that are not the first of their job."""
    summaries = [snapshot.summary for snapshot in table.metadata.snapshots if snapshot.summary]
    return sum(int(summary.get(_ROUND, 0) or 0) > 0 for summary in summaries)


@contextmanager
def stream(scale: float, batches: int, interval: float, run_tables: RunTables) -> Iterator[Stream]:
    """A writer in a process of its own, from when it is ready to the end of the run."""
    arguments = {
        "catalog": NAME,
        "uri": run_tables.catalog.uri,
        "warehouse": run_tables.catalog.warehouse,
        "table": run_tables.names[0],
        "scale": scale,
        "batches": batches,
        "interval": interval,
    }
    command = [sys.executable, "-m", "bench.contestants.lineitem_writer", json.dumps(arguments)]
    writer = Contestant(command, os.environ, cores=2, log=run_tables.catalog.folder / "writer.log")
    seen = Stream(run_tables)
    try:
        yield seen
        facts = writer.ask({"do": "stop"}, _STOP).facts
        seen.commits, seen.difference = facts["commits"], Checksum(facts["rows"], int(facts["hashes"]))
    finally:
        writer.close()


def cases(size: Size) -> Sequence[Case]:
    """The table of W3, and each contestant beside a writer of its own."""
    again = {"seconds": size.w5_seconds, "every": size.w5_interval}
    entries = [_again(entry, again) for entry in maintenance(limit=size.w5_seconds + 900.0)]
    return [
        Case(
            name=f"{BUCKETS} buckets",
            title=f"lineitem at scale {size.w3_scale:g}, {BUCKETS} buckets, worked on again and again for "
            f"{size.w5_seconds:g} s while a batch is committed every {size.w5_interval:g} s",
            master=master_name(size, bucketed=True),
            recipe=partial(recipe, size.w3_scale, size.w3_batches, True),
            entries=entries,
            changed_bytes=streamed_bytes,
            stream=partial(stream, size.w3_scale, size.w3_batches, size.w5_interval),
            together=False,
        )
    ]


def _again(entry: Entry, again: Mapping[str, float]) -> Entry:
    assert isinstance(entry.ask, Mapping)
    return replace(entry, ask={**entry.ask, "again": again}, leaves={}, check=_check_committed, runs=1, warmups=0)


def _check_committed(run_tables: RunTables, facts: Mapping[str, Any]) -> str | None:
    """Return what is wrong if no job has committed."""
    if any(job["end"] == "committed" for job in facts["jobs"]):
        return None
    return "no job committed: " + "; ".join(job.get("error", job["end"]) for job in facts["jobs"][:1])


WORKLOAD = Workload(
    name="w5",
    title="W5: a live stream",
    about="The table of W3 in buckets, while a writer goes on committing batches. A job starts as soon as the one "
    "before has ended and a batch may have come. The line below the table sums up the jobs; seconds in the table are "
    "those of all jobs together.",
    cases=cases,
)
