"""The deletes that other writers added and removed between a plan's snapshot and the head."""

from __future__ import annotations

from functools import partial

import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table.snapshots import Snapshot

from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import VectorRef
from producer.storage.files import map_parallel
from tasks.job.branch_head import BranchHead, Reach, added_files, reach_of
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import read_vector
from workers.runtime.errors import DataError


class DeleteChanges:
    """The deletes by which a head differs from the plan's snapshot.

    One object sees all attempts at a commit: what it has read of a snapshot or a file is not read again.
    """

    def __init__(self) -> None:
        self._added: dict[int, list[LiveFile]] = {}
        self._named: dict[str, frozenset[str] | None] = {}
        self._contained: dict[tuple[VectorRef, VectorRef], bool] = {}

    def added(self, head: BranchHead) -> list[LiveFile]:
        """Return the deletes that are live at the head and were not at the plan's snapshot."""
        before = {_identity(delete) for delete in head.base_deletes}
        return [delete for delete in head.deletes if _identity(delete) not in before]

    def removed(self, head: BranchHead) -> list[LiveFile]:
        """Return the deletes that were live at the plan's snapshot and are not at the head."""
        live = {_identity(delete) for delete in head.deletes}
        return [delete for delete in head.base_deletes if _identity(delete) not in live]

    def added_equality(self, head: BranchHead) -> list[LiveFile]:
        """Return every equality delete that was added since, whether or not it is still live.

        The head alone does not tell: nothing is left there of one that was added and retired again.
        """
        unknown = [s for s in head.later_snapshots if s.snapshot_id not in self._added]
        found = map_parallel(partial(_equality_added_by, head.io), unknown)
        self._added.update((snapshot.snapshot_id, files) for snapshot, files in zip(unknown, found, strict=True))
        files = {_identity(f): f for snapshot in head.later_snapshots for f in self._added[snapshot.snapshot_id]}
        live = {_identity(f): f for f in self.added(head) if f.content == DataFileContent.EQUALITY_DELETES}
        return list({**files, **live}.values())

    def names(self, io: FileIO, delete: LiveFile, path: str) -> bool:
        """Return whether a position delete file names a data file; one that cannot be read may."""
        if delete.referenced_data_file is not None:
            return delete.referenced_data_file == path
        if delete.path not in self._named:
            self._named[delete.path] = _named(io, delete.path)
        named = self._named[delete.path]
        return named is None or path in named

    def contains(self, io: FileIO, vector: VectorRef, before: VectorRef, path: str) -> bool:
        """Return whether a data file's vector deletes all that an earlier one deleted, and both can be read."""
        if vector == before:
            return True
        if (vector, before) not in self._contained:
            self._contained[vector, before] = _contains(io, vector, before, path)
        return self._contained[vector, before]


def _identity(delete: LiveFile) -> tuple[str, int | None, Reach]:
    """Return what tells deletes apart: one that came back under its path and applies to other files now is another."""
    return *delete.identity, reach_of(delete)


def _contains(io: FileIO, vector: VectorRef, before: VectorRef, path: str) -> bool:
    if vector.cardinality < before.cardinality:
        return False
    try:
        now, earlier = (read_vector(io, ref, path) for ref in (vector, before))
    except DataError:
        return False  # planning again reports it
    return bool(now.contains(earlier.positions()).all())


def _equality_added_by(io: FileIO, snapshot: Snapshot) -> list[LiveFile]:
    added = added_files(io, snapshot, (ManifestContent.DELETES,))
    return [file for file in added if file.content == DataFileContent.EQUALITY_DELETES]


def _named(io: FileIO, path: str) -> frozenset[str] | None:
    try:
        batches = read_position_deletes(io, path)
        return frozenset(name for batch in batches for name in pc.unique(batch.column("file_path")).to_pylist())
    except DataError:
        return None  # planning again reports it
