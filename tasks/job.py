"""A job as its steps see it: its records on the table's storage, and its table, freshly loaded each time."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.io import load_file_io
from pyiceberg.table import Table

from producer.catalog import open_catalog, open_table
from producer.errors import Corrupt, Failed, Reason, Refused
from producer.messages import JobId
from producer.places import Places
from producer.plans import Plan
from producer.store import ROOT, JobStore


@dataclass(frozen=True)
class JobContext:
    """One job's name and records."""

    id: str
    name: JobId
    store: JobStore
    #: Where its table's files may lie.
    places: Places

    @classmethod
    def open(cls, job: str, location: str | None = None) -> JobContext:
        """Find a job's records.

        Args:
            job: Its id, which names the table.
            location: The table's, if it is known: the records are found then even after the table was dropped.

        Raises:
            Refused: there is no such table.
            Corrupt: its metadata cannot be read, and the location is not known.
        """
        name = JobId.parse(job)
        try:
            table = open_table(name.catalog, name.table)
            store = JobStore(table.io, location or table.metadata.location, name.token)
            return cls(job, name, store, Places.of(table.metadata))
        except (Refused, Corrupt) as error:
            if location is None or (isinstance(error, Refused) and error.reason != Reason.UNKNOWN_TABLE):
                raise
            io = load_file_io(dict(open_catalog(name.catalog).properties), location)
            return cls(job, name, JobStore(io, location, name.token), Places.at(location))

    def reload(self, plan: Plan) -> Table:
        """The table as it is now.

        Raises:
            Failed: it was dropped, or another one has its name.
        """
        try:
            table = open_table(self.name.catalog, self.name.table)
        except Refused as error:
            if error.reason != Reason.UNKNOWN_TABLE:
                raise
            raise Failed(f"{self.name.table} was dropped while the job ran: nothing was committed.") from error
        if str(table.metadata.table_uuid) != plan.table_uuid:
            raise Failed(f"{self.name.table} was replaced by another table while the job ran: nothing was committed.")
        if not Places.of(table.metadata).hold(f"{self.store.location}/{ROOT}"):
            raise Failed(f"The job's records lie at {self.store.location}, which is no place of {self.name.table}.")
        return table
