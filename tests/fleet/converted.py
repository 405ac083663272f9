"""One large job, run once: what was there before it, what was seen while it ran, and what it left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from producer import Job, Report
from producer.job import Progress
from tasks.testing import StreamTable
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import equality_deletes, inserted, rows_of, streamed

PARTITIONS, FILES, UPSERTS = 12, 4, 2

#: Another application: it enqueues a table and ends.
APPLICATION = """
import json, sys, time
from producer import Fleet

fleet = Fleet()
fleet.convert("db.warm")
started = time.perf_counter()
job = fleet.convert("db.events")
seconds = time.perf_counter() - started
imported = [name for name in ("pyspark", "py4j", "tasks", "workers") if name in sys.modules]
print(json.dumps({"job": job.id, "seconds": seconds, "imported": imported}))
"""


@dataclass
class Converted:
    """A job that ran on the shared fleet."""

    table: StreamTable
    #: What the application that enqueued it printed.
    enqueued: dict[str, Any]
    job: Job
    rows: pa.Table
    equality_deletes: int
    snapshots: list[int]
    progress: list[Progress] = field(default_factory=list)
    #: What Flower's API said of the units' tasks while they ran, and at the end.
    sampled: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    #: Units by worker.
    units: dict[str, int] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        """How the job ended."""
        return self.job.result()

    @classmethod
    def by(cls, fleet: LocalFleet) -> Converted:
        """Fill a table, have it converted, and look on."""
        inserted(fleet.catalog, "db.warm")
        events = streamed(fleet.catalog, "db.events", partitions=PARTITIONS, files=FILES, upserts=UPSERTS)
        snapshots = [snapshot.snapshot_id for snapshot in events.table.metadata.snapshots]
        rows, deletes, before = rows_of(events.table), equality_deletes(events), _units(fleet)
        done = fleet.python("-c", APPLICATION)
        assert done.returncode == 0, done.stderr
        enqueued = json.loads(done.stdout)
        converted = cls(events, enqueued, fleet.fleet.job(enqueued["job"]), rows, deletes, snapshots)

        def look(progress: Progress) -> None:
            converted.progress.append(progress)
            converted.sampled.append(fleet.flower("/api/tasks?taskname=icefleet.convert"))

        converted.job.wait(200, look)
        converted.units = {name: units - before[name] for name, units in _units(fleet).items()}
        return converted


def _units(fleet: LocalFleet) -> dict[str, int]:
    """How many units each worker has ended since it was started."""
    stats = fleet.inspect().stats() or {}
    return {node.partition("@")[0]: said["total"].get("icefleet.convert", 0) for node, said in stats.items()}
