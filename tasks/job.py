"""A job as its steps see it: its table, freshly loaded, and its records on the table's storage."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table import Table

from producer.catalog import open_table
from producer.errors import Failed, Refused
from producer.messages import JobId, Plan
from producer.store import JobStore


@dataclass(frozen=True)
class JobContext:
    """One job's table and records."""

    job: JobId
    table: Table
    store: JobStore

    @classmethod
    def open(cls, job: str) -> JobContext:
        """Load the table that the job's id names.

        Raises:
            Refused: there is no such table (any more).
            Corrupt: its metadata cannot be read.
        """
        parsed = JobId.parse(job)
        table = open_table(parsed.catalog, parsed.table)
        return cls(parsed, table, JobStore(table.io, table.metadata.location, parsed.token))

    def reload(self, plan: Plan) -> Table:
        """The table as it is now.

        Raises:
            Failed: it was dropped, or another one has its name.
        """
        try:
            table = open_table(self.job.catalog, self.job.table)
        except Refused as error:
            raise Failed(f"{self.job.table} was dropped while the job ran: nothing was committed.") from error
        if str(table.metadata.table_uuid) != plan.table_uuid:
            raise Failed(f"{self.job.table} was replaced by another table while the job ran: nothing was committed.")
        return table
