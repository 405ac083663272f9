"""One job on a table of its own while something is broken, and the judgement afterwards."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from producer import Job, Report
from producer.model.job import Operation, Status
from tasks.testing import StreamTable
from tests.chaos import invariants
from tests.chaos.arena import Arena
from tests.chaos.invariants import Violated
from tests.fleet.tables import equality_deletes, rows_of, streamed

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Trial:
    """A table of some units, and what was in it before."""

    arena: Arena
    table: StreamTable
    rows: pa.Table
    operation: Operation
    catalog: str = "default"

    @classmethod
    def of(cls, arena: Arena, operation: Operation, version: int, units: int = 2) -> Self:
        """Fill a table."""
        name = f"db.t{next(_NUMBERS)}"
        table = streamed(arena.catalog, name, partitions=units, upserts=1, format_version=version)
        return cls(arena, table, rows_of(table.table), operation)

    def start(self) -> Job:
        """Have all of it worked on."""
        if self.operation is Operation.COMPACT:
            return self.arena.fleet.compact(self.table.identifier, catalog=self.catalog, tier="full")
        return self.arena.fleet.convert(self.table.identifier, catalog=self.catalog)

    def nothing_is_left(self) -> None:
        """Check that the table's place has its files, and nothing else."""
        invariants.nothing_is_left(self.table.table, self.arena.records(self.table.identifier))

    def judged(self, report: Report, *, committed: bool = False) -> Report:
        """Check all that must hold after a job has ended, once everybody is at rest.

        Args:
            committed: Whether what happened to it is nothing that may keep it from doing all of its work.

        Raises:
            Violated: it does not hold.
        """
        invariants.ends_with_a_reason(report)
        if committed and (report.status is not Status.COMMITTED or report.failed_units):
            raise Violated(f"it could have been done, and was not: {report}")
        self.arena.whole()
        self.arena.clean(self.nothing_is_left)
        table = self.table.table
        invariants.rows_are(table, self.rows)
        invariants.committed_once(table)
        invariants.totals_are_right(table)
        if report.status is Status.COMMITTED and equality_deletes(self.table):
            raise Violated("it has committed, and equality deletes are live")
        return report

    def done_after_all(self) -> None:
        """Check that a job that nobody disturbs does what is left to do."""
        report = self.arena.end_of(self.start())
        if report.status not in {Status.COMMITTED, Status.NOTHING_TO_DO}:
            raise Violated(f"undisturbed it ended as {report.status}: {report.reason}")
        self.judged(report)
        if equality_deletes(self.table):
            raise Violated("undisturbed it has left equality deletes")
