"""A job as its steps see it: its records, its freshly loaded table, and the files it may read and delete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table

from producer.common.errors import Corrupt, Failed, OutsideTable, Reason, Refused
from producer.iceberg.catalog import open_catalog, open_table
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.model.job import JobId, Report, Request
from producer.model.plan import Plan, Unit
from producer.planning.planner import branch_head
from producer.state.job_store import ROOT, JobStore, branches_of
from producer.storage.files import delete_files, delete_in_order
from producer.storage.locations import FencedFileIO, TableLocations


@dataclass(frozen=True)
class JobContext:
    """A job's id, its records, and where its table's files may lie."""

    id: str
    name: JobId
    store: JobStore
    #: The locations of the table's files.
    locations: TableLocations
    #: Whether the records lie at the table; if not, only the message says where they are.
    at_table: bool = True

    @classmethod
    def open(cls, job: str, location: str | None = None) -> JobContext:
        """Find a job's records; with the table's location they are found even after the table is dropped.

        Raises:
            Refused: There is no such table.
            Corrupt: Its metadata cannot be read, and the location is not known.
        """
        name = JobId.parse(job)
        try:
            table = open_table(name.catalog, name.table)
        except (Refused, Corrupt) as error:
            if location is None or (isinstance(error, Refused) and error.reason != Reason.UNKNOWN_TABLE):
                raise
        else:
            locations, home = TableLocations.of(table.metadata), location or table.metadata.location
            branches = branches_of(table.metadata)
            if location is None or locations.contain(f"{home}/{ROOT}"):
                return cls(
                    job, name, JobStore(FencedFileIO(table.io, locations), home, name.token, branches), locations
                )
        # Dropped or replaced since, or the message is wrong: then no plan of this job lies there.
        io, locations = load_file_io(dict(open_catalog(name.catalog).properties), location), TableLocations.at(location)
        return cls(job, name, JobStore(FencedFileIO(io, locations), location, name.token), locations, at_table=False)

    def snapshot(self, *kinds: str) -> JobContext:
        """Return the job with its records as they are now, for several questions at once; see JobStore.snapshot."""
        return replace(self, store=self.store.snapshot(*kinds))

    def owns(self, path: str) -> bool:
        """Return whether a file can be one that was written for this job: its name carries the job's token."""
        return self.locations.contain(path) and f"{self.name.token}-" in path.rpartition("/")[2]

    @property
    def deleter(self) -> FileDeleter:
        """Deletes this job's own files, and no others without a grant."""
        return FileDeleter(self.store.io, (f"{self.name.token}-",))

    def request(self, plan: Plan) -> Request:
        """Return the plan's request, or the one that follows from the job's id if the plan is another job's."""
        return plan.request if self.objection(plan) is None else request_from_id(self.id)

    def objection(self, plan: Plan) -> str | None:
        """Return why a plan among the job's records was not made for this job, or None if it may have been."""
        request = plan.request
        if request.job != self.id:
            return f"The plan among the job's records is that of {request.job}."
        if not self.name.matches(request):
            return f"The job's plan is for {request.table} in catalog {request.catalog!r}."
        if plan.location.rstrip("/") != self.store.location:
            return f"The job's plan is for a table at {plan.location}, and its records lie at {self.store.location}."
        if not plan.token.isalnum():
            return f"{plan.token!r} is no name of a plan."
        return None

    def conclusion(self) -> Report | None:
        """Return the report that the job has ended with, or None if its records have none."""
        report = self.store.conclusion()
        return report if report is not None and report.job == self.id else None

    def reload(self, plan: Plan) -> Table:
        """Load the table as it is now; its file access writes and deletes only below the table's locations.

        Raises:
            Failed: The table was dropped or replaced, or the plan is another job's.
        """
        if (objection := self.objection(plan)) is not None:
            raise OutsideTable(objection)
        try:
            table = open_table(self.name.catalog, self.name.table)
        except Refused as error:
            if error.reason != Reason.UNKNOWN_TABLE:
                raise
            raise Failed(f"{self.name.table} was dropped while the job ran: nothing was committed.") from error
        if str(table.metadata.table_uuid) != plan.table_uuid:
            raise Failed(f"{self.name.table} was replaced by another table while the job ran: nothing was committed.")
        locations = TableLocations.of(table.metadata)
        if not locations.contain(f"{self.store.location}/{ROOT}"):
            raise Failed(f"The job's records lie at {self.store.location}, which is no place of {self.name.table}.")
        table.io = FencedFileIO(table.io, locations)
        return table


def request_from_id(job: str) -> Request:
    """Return the request that follows from a job's id: its operation, catalog and table."""
    name = JobId.parse(job)
    return Request(job=job, operation=name.operation, catalog=name.catalog, table=name.table)


def check_inputs(table: Table, plan: Plan, unit: Unit) -> None:
    """Check that a unit reads only files of the table: below its locations, or referenced by its metadata.

    A table may refer to files outside of its locations. Only for these is its metadata read, as planning has done.

    Raises:
        OutsideTable: The unit names another file; the message names the first of them.
    """
    locations = TableLocations.of(table.metadata)
    foreign = {path for path in _input_paths(unit) if not locations.contain(path)}
    if foreign and (unknown := foreign - _live_files(table, plan)):
        raise OutsideTable(f"{min(unknown)} is no file of {plan.request.table}: it is not read.")


def _input_paths(unit: Unit) -> Iterator[str]:
    for data in unit.data:
        yield data.path
        if data.vector is not None:
            yield data.vector.path
    yield from (delete.path for delete in unit.deletes)
    yield from (positions.path for positions in unit.positions)


def _live_files(table: Table, plan: Plan) -> frozenset[str]:
    """Return the files that were live when the round was planned."""
    snapshot = table.metadata.snapshot_by_id(plan.snapshot_id) if plan.snapshot_id is not None else None
    if snapshot is None and (snapshot := branch_head(table, plan.request.branch)) is None:
        return frozenset()
    return frozenset(file.path for file in read_manifests(table.io, read_manifest_list(table.io, snapshot)))


@dataclass(frozen=True)
class DeletionGrant:
    """Permission to delete certain files that are not the job's own.

    Only an operation whose purpose is to delete files makes one, such as the expiry of snapshots or the removal of
    orphans, from what it knows about each file. A grant cannot be widened.
    """

    #: The full paths of the files, and no others.
    paths: frozenset[str]
    #: Why they may be deleted, in words for the log.
    reason: str
    #: Seconds since the epoch from which on no snapshot and no metadata file has referred to any of them.
    unreferenced_since: float

    def __post_init__(self) -> None:
        """Refuse a grant without a reason or a time."""
        if not self.reason or self.unreferenced_since <= 0:
            raise ValueError("a grant says why its files may be deleted, and since when nothing refers to them")


@dataclass(frozen=True)
class FileDeleter:
    """Deletes files of one job.

    A file is the job's own if its name contains one of the markers: the job's token, or the name of one of its commit
    attempts. The file access refuses what lies outside of the table's locations, granted or not.
    """

    io: FileIO
    #: Parts of names that only this job's files have.
    markers: tuple[str, ...]
    grant: DeletionGrant | None = None

    def with_marker(self, marker: str) -> FileDeleter:
        """Return a deleter that also deletes files with another marker of the job."""
        return FileDeleter(self.io, (*self.markers, marker), self.grant)

    def with_grant(self, grant: DeletionGrant) -> FileDeleter:
        """Return a deleter that also deletes the files of a grant."""
        return FileDeleter(self.io, self.markers, grant)

    def may_delete(self, path: str) -> bool:
        """Return whether a file is the job's own, or granted."""
        name = path.rpartition("/")[2]
        own = any(marker and marker in name for marker in self.markers)
        return own or (self.grant is not None and path in self.grant.paths)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, some of which may never have been written.

        Raises:
            OutsideTable: One of them is neither the job's own nor granted; none is deleted.
        """
        delete_files(self.io, self._checked(paths))

    def delete_in_order(self, paths: Iterable[str]) -> None:
        """Delete files one after another, so that those left after an error still lead to the rest; raises as above."""
        delete_in_order(self.io, self._checked(paths))

    def _checked(self, paths: Iterable[str]) -> list[str]:
        found = list(paths)
        if foreign := [path for path in found if not self.may_delete(path)]:
            raise OutsideTable(f"{foreign[0]} is no file of this job: it is not deleted.")
        return found
