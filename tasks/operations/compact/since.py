"""Which deletes came and went between a plan's snapshot and the head."""

from __future__ import annotations

from functools import partial

import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table.snapshots import Snapshot

from producer.common.storage import map_parallel
from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import VectorRef
from tasks.job.branch_head import BranchHead, Reach, added_by, reach_of
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import read_vector
from workers.runtime.errors import DataError


class DeletesSince:
    """The deletes by which a head differs from the plan's snapshot.

    One object sees all attempts at a commit: what it has read of a snapshot or a file is not read again.
    """

    def __init__(self) -> None:
        self._equality: dict[int, list[LiveFile]] = {}
        self._named: dict[str, frozenset[str] | None] = {}
        self._held: dict[tuple[VectorRef, VectorRef], bool] = {}

    def new(self, head: BranchHead) -> list[LiveFile]:
        """Deletes that are live at the head and were not at the plan's snapshot."""
        before = {_identity(delete) for delete in head.base_deletes}
        return [delete for delete in head.deletes if _identity(delete) not in before]

    def gone(self, head: BranchHead) -> list[LiveFile]:
        """Deletes that were live at the plan's snapshot and are not at the head."""
        live = {_identity(delete) for delete in head.deletes}
        return [delete for delete in head.base_deletes if _identity(delete) not in live]

    def equality(self, head: BranchHead) -> list[LiveFile]:
        """Every equality delete that was added since, whether or not it is still live.

        The head alone does not tell: of one that was added and retired again nothing is left there.
        """
        unknown = [s for s in head.since if s.snapshot_id not in self._equality]
        found = map_parallel(partial(_equality_added_by, head.io), unknown)
        self._equality.update((snapshot.snapshot_id, files) for snapshot, files in zip(unknown, found, strict=True))
        files = {_identity(f): f for snapshot in head.since for f in self._equality[snapshot.snapshot_id]}
        live = {_identity(f): f for f in self.new(head) if f.content == DataFileContent.EQUALITY_DELETES}
        return list({**files, **live}.values())

    def names(self, io: FileIO, delete: LiveFile, path: str) -> bool:
        """Whether a position delete file names a data file; one that cannot be read may."""
        if delete.referenced_data_file is not None:
            return delete.referenced_data_file == path
        if delete.path not in self._named:
            self._named[delete.path] = _named(io, delete.path)
        named = self._named[delete.path]
        return named is None or path in named

    def holds(self, io: FileIO, vector: VectorRef, before: VectorRef, path: str) -> bool:
        """Whether a data file's vector deletes all that an earlier one deleted; not if one of them cannot be read."""
        if vector == before:
            return True
        if (vector, before) not in self._held:
            self._held[vector, before] = _holds(io, vector, before, path)
        return self._held[vector, before]


def _identity(delete: LiveFile) -> tuple[str, int | None, Reach]:
    """Tells deletes apart; one that left and came back under its path, and applies to other files now, is another."""
    return *delete.identity, reach_of(delete)


def _holds(io: FileIO, vector: VectorRef, before: VectorRef, path: str) -> bool:
    if vector.cardinality < before.cardinality:
        return False
    try:
        now, earlier = (read_vector(io, ref, path) for ref in (vector, before))
    except DataError:
        return False  # whoever plans again will say so
    return bool(now.contains(earlier.positions()).all())


def _equality_added_by(io: FileIO, snapshot: Snapshot) -> list[LiveFile]:
    added = added_by(io, snapshot, (ManifestContent.DELETES,))
    return [file for file in added if file.content == DataFileContent.EQUALITY_DELETES]


def _named(io: FileIO, path: str) -> frozenset[str] | None:
    try:
        batches = read_position_deletes(io, path)
        return frozenset(name for batch in batches for name in pc.unique(batch.column("file_path")).to_pylist())
    except DataError:
        return None  # whoever plans again will say so
