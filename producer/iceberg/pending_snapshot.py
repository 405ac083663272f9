"""A snapshot that is written and not yet committed, and its commit as one compare-and-swap."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from producer.iceberg.metadata_v3 import AssertLastSequenceNumber, enable_version_3, last_sequence_number

enable_version_3()


@dataclass(frozen=True)
class PreparedSnapshot:
    """A snapshot whose manifests are written and which no one sees before it is committed."""

    table: Table
    branch: str
    ref: SnapshotRef | None
    snapshot: Snapshot
    #: Full paths of the manifests and the manifest list that were written for it.
    written: tuple[str, ...]

    def commit(self) -> Snapshot:
        """Try once to put the snapshot at the branch's head.

        Raises:
            CommitFailedException: the table changed meanwhile. The snapshot is definitely not in the table: discard
                it, load the table and build it again.
            Exception: whatever else the catalog raises means that the state is unknown: delete nothing before the
                table's history shows whether the snapshot is in it.
        """
        catalog = self.table.catalog
        try:
            catalog.commit_table(self.table, self._requirements, self._updates)
        except ValueError as error:
            # Catalogs outside PyIceberg may meet a moved sequence number or row id while they apply the updates.
            now = catalog.load_table(self.table.name()).metadata
            if now.snapshot_by_id(self.snapshot.snapshot_id) is None:
                if last_sequence_number(now) == last_sequence_number(self.table.metadata):
                    raise
                raise CommitFailedException(str(error)) from error
        return self.snapshot

    def discard(self) -> None:
        """Delete what was written for the snapshot; only for one that is definitely not in the table.

        The first manifest goes last: the others are found by it, should this end halfway.
        """
        delete_in_order(self.table.io, reversed(self.written))

    @property
    def _requirements(self) -> tuple[TableRequirement, ...]:
        metadata = self.table.metadata
        requirements: list[TableRequirement] = [
            AssertTableUUID(uuid=metadata.table_uuid),
            AssertRefSnapshotId(ref=self.branch, snapshot_id=self.ref.snapshot_id if self.ref else None),
        ]
        if isinstance(self.table.catalog, MetastoreCatalog):
            sequence = AssertLastSequenceNumber(last_sequence_number=last_sequence_number(metadata))
            requirements.append(sequence)  # type: ignore[arg-type]
        return tuple(requirements)

    @property
    def _updates(self) -> tuple[TableUpdate, ...]:
        return (
            AddSnapshotUpdate(snapshot=self.snapshot),
            SetSnapshotRefUpdate(
                ref_name=self.branch,
                type=SnapshotRefType.BRANCH,
                snapshot_id=self.snapshot.snapshot_id,
                max_ref_age_ms=self.ref.max_ref_age_ms if self.ref else None,
                max_snapshot_age_ms=self.ref.max_snapshot_age_ms if self.ref else None,
                min_snapshots_to_keep=self.ref.min_snapshots_to_keep if self.ref else None,
            ),
        )


def delete_in_order(io: FileIO, paths: Iterable[str]) -> None:
    """Delete what is there of some files, one after another.

    Raises:
        Exception: one cannot be deleted, and those after it are left: they lead to it, for whoever tries again.
    """
    for path in paths:
        with suppress(FileNotFoundError):
            io.delete(path)
