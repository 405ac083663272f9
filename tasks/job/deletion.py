"""The one door by which the steps of a job delete files of a table: the job's own, and those of an explicit grant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.io import FileIO

from producer.common.errors import OutsideTable
from producer.common.storage import delete_files, delete_in_order


@dataclass(frozen=True)
class DeletionGrant:
    """Permission to delete certain files that are not the job's own.

    Only an operation whose purpose is to delete files, such as the expiry of snapshots or the removal of orphans, makes
    one, from what it has found out about each file. Whoever passes a grant on cannot widen it.
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
        """Delete files one after another, so that those left after an error still lead to those deleted later.

        Raises:
            OutsideTable: One of them is neither the job's own nor granted; none is deleted.
        """
        delete_in_order(self.io, self._checked(paths))

    def _checked(self, paths: Iterable[str]) -> list[str]:
        found = list(paths)
        if foreign := [path for path in found if not self.may_delete(path)]:
            raise OutsideTable(f"{foreign[0]} is no file of this job: it is not deleted.")
        return found
