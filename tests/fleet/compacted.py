"""One compaction of many units, run once: what was there before it, what was seen while it ran, and what it left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from producer import Job, Report
from producer.job import Progress
from tasks.testing import StreamTable
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import rows_of, streamed

PARTITIONS, FILES, UPSERTS = 4, 16, 2


@dataclass
class Compacted:
    """A job that ran on the shared fleet."""

    table: StreamTable
    job: Job
    rows: pa.Table
    data_files: int
    delete_files: int
    snapshots: list[int]
    progress: list[Progress] = field(default_factory=list)
    #: What Flower's API said of the units' tasks while they ran, and at the end.
    sampled: list[dict[str, dict[str, Any]]] = field(default_factory=list)

    @property
    def report(self) -> Report:
        """How the job ended."""
        return self.job.result()

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The units' tasks as Flower showed them at the end."""
        return [task for task in self.sampled[-1].values() if self.job.id in task["kwargs"]]

    @classmethod
    def by(cls, fleet: LocalFleet) -> Compacted:
        """Fill a table, have it compacted, and look on."""
        table = streamed(fleet.catalog, "db.compacted", partitions=PARTITIONS, files=FILES, upserts=UPSERTS)
        rows, data, deletes = rows_of(table.table), len(table.data_files()), len(table.delete_files())
        snapshots = [snapshot.snapshot_id for snapshot in table.table.metadata.snapshots]
        compacted = cls(table, fleet.fleet.compact("db.compacted"), rows, data, deletes, snapshots)

        def look(progress: Progress) -> None:
            compacted.progress.append(progress)
            compacted.sampled.append(fleet.flower("/api/tasks?taskname=icefleet.compact"))

        compacted.job.wait(200, look)
        return compacted
