"""A job as its steps see it: its records on the table's storage, and its table, freshly loaded each time."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.io import load_file_io
from pyiceberg.table import Table

from producer.common.errors import Corrupt, Elsewhere, Failed, Reason, Refused
from producer.common.storage import Fenced, Places
from producer.iceberg.catalog import open_catalog, open_table
from producer.model.job import JobId, Report, Request
from producer.model.plan import Plan
from producer.state.job_store import ROOT, JobStore, branches_of


@dataclass(frozen=True)
class JobContext:
    """One job's name and records."""

    id: str
    name: JobId
    store: JobStore
    #: Where its table's files may lie.
    places: Places
    #: Whether the records lie at the table; else nobody but the message says where they do.
    known: bool = True

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
        except (Refused, Corrupt) as error:
            if location is None or (isinstance(error, Refused) and error.reason != Reason.UNKNOWN_TABLE):
                raise
        else:
            places, home = Places.of(table.metadata), location or table.metadata.location
            branches = branches_of(table.metadata)
            if location is None or places.hold(f"{home}/{ROOT}"):
                return cls(job, name, JobStore(Fenced(table.io, places), home, name.token, branches), places)
        # Dropped or replaced since, or the message is wrong: then no plan of this job lies there.
        io, places = load_file_io(dict(open_catalog(name.catalog).properties), location), Places.at(location)
        return cls(job, name, JobStore(Fenced(io, places), location, name.token), places, known=False)

    def owns(self, path: str) -> bool:
        """Whether a file can be one that was written for this job: their names carry the job's."""
        return self.places.hold(path) and f"{self.name.token}-" in path.rpartition("/")[2]

    def request(self, plan: Plan) -> Request:
        """What was asked for; of a plan that is none of this job's, no more than the job's id tells."""
        return plan.request if self.objection(plan) is None else self.request_by_name

    @property
    def request_by_name(self) -> Request:
        """What the job's id alone tells of what was asked for."""
        return Request(job=self.id, operation=self.name.operation, catalog=self.name.catalog, table=self.name.table)

    def objection(self, plan: Plan) -> str | None:
        """Why a plan that lies among the job's records is none that was made for it; None where it may be."""
        asked = plan.request
        if asked.job != self.id:
            return f"The plan among the job's records is that of {asked.job}."
        if (asked.operation, asked.catalog, asked.table) != self.name.about:
            return f"The job's plan is for {asked.table} in catalog {asked.catalog!r}."
        if plan.location.rstrip("/") != self.store.location:
            return f"The job's plan is for a table at {plan.location}, and its records lie at {self.store.location}."
        if not plan.token.isalnum():
            return f"{plan.token!r} is no name of a plan."
        return None

    def conclusion(self) -> Report | None:
        """How the job has ended, as far as its records tell."""
        report = self.store.conclusion()
        return report if report is not None and report.job == self.id else None

    def reload(self, plan: Plan) -> Table:
        """The table as it is now; by its access to files nothing is written or deleted but the table's own.

        Raises:
            Failed: it was dropped, or another one has its name, or the plan is none of this job's.
        """
        if (objection := self.objection(plan)) is not None:
            raise Elsewhere(objection)
        try:
            table = open_table(self.name.catalog, self.name.table)
        except Refused as error:
            if error.reason != Reason.UNKNOWN_TABLE:
                raise
            raise Failed(f"{self.name.table} was dropped while the job ran: nothing was committed.") from error
        if str(table.metadata.table_uuid) != plan.table_uuid:
            raise Failed(f"{self.name.table} was replaced by another table while the job ran: nothing was committed.")
        places = Places.of(table.metadata)
        if not places.hold(f"{self.store.location}/{ROOT}"):
            raise Failed(f"The job's records lie at {self.store.location}, which is no place of {self.name.table}.")
        table.io = Fenced(table.io, places)
        return table
