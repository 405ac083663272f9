"""Fleets that lose what they are made of, and jobs that must end all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from producer import Job, Report
from producer.model.job import Operation, Status
from tasks.testing import StreamTable
from tests.fleet.localfleet import LocalFleet
from tests.fleet.tables import equality_deletes, left_behind, rows_of, snapshots_of, streamed

WORKERS = ("red", "blue")
ATTEMPTS = 2


def complete(fleet: LocalFleet) -> None:
    """Put back whatever a test took from a fleet."""
    for name in fleet.processes.running.keys() - {*WORKERS, "committer", "redis"}:
        fleet.processes.kill(name)
    missing = {*WORKERS, "committer"} - fleet.processes.running.keys()
    for name in missing:
        if name == "committer":
            fleet.start_committer(name, "--beat")
        else:
            fleet.start_worker(name)
    if missing:
        fleet.answering(*WORKERS, "committer")


@dataclass
class Case:
    """A table of some units and what was in it before."""

    fleet: LocalFleet
    table: StreamTable
    rows: pa.Table
    snapshots: int
    operation: Operation = Operation.CONVERT

    @classmethod
    def of(
        cls,
        fleet: LocalFleet,
        name: str,
        units: int,
        format_version: int = 2,
        operation: Operation = Operation.CONVERT,
    ) -> Self:
        """Fill a table."""
        table = streamed(fleet.catalog, f"db.{name}", partitions=units, upserts=1, format_version=format_version)
        return cls(fleet, table, rows_of(table.table), len(table.table.metadata.snapshots), operation)

    def start(self) -> Job:
        """Have all of it worked on."""
        if self.operation is Operation.COMPACT:
            return self.fleet.fleet.compact(self.table.identifier, tier="full")
        return self.fleet.fleet.convert(self.table.identifier)

    def ended(self, job: Job) -> Report:
        """Wait for the job's end, and check that it committed everything, once, and left nothing."""
        report = job.wait(150)
        assert report.status == Status.COMMITTED, report
        assert report.failed_units == 0
        self.fleet.settle(len(self.fleet.processes.running) - 1)
        assert snapshots_of(self.table.table, job.id) == [report.snapshot_id]
        assert len(self.table.table.metadata.snapshots) == self.snapshots + 1
        if self.operation is Operation.COMPACT:
            assert self.table.delete_files() == []
            assert len(self.table.data_files()) == report.units
        assert equality_deletes(self.table) == 0
        self.is_whole()
        return report

    def is_whole(self) -> None:
        """The rows are those from before, and no file is there that nobody refers to."""
        assert rows_of(self.table.table) == self.rows
        assert left_behind(self.table.table) == []
        assert self.fleet.records(self.table.identifier) == []
