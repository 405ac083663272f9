"""A snapshot that is written and not yet committed, and its commit as one compare-and-swap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from producer.common.storage import delete_in_order
from producer.iceberg.pyiceberg_internals import enable_version_3

enable_version_3()


@dataclass(frozen=True)
class PendingSnapshot:
    """A snapshot whose manifests are on storage; nobody sees it before it is committed."""

    table: Table
    branch: str
    #: The branch as it was; None if the commit creates it.
    ref: SnapshotRef | None
    snapshot: Snapshot
    #: Full paths of the manifests and the manifest list that were written for it.
    written: tuple[str, ...]

    def commit(self) -> Snapshot:
        """Try once to put the snapshot at the branch's head.

        Raises:
            CommitFailedException: The table has changed. The snapshot is definitely not in the table: discard it, load
                the table and build the snapshot again.
            Exception: Any other error of the catalog means that the outcome is unknown: delete nothing before the
                table's history shows whether it has the snapshot.
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
        """Delete the files of the snapshot; only for one that is definitely not in the table.

        The first manifest goes last: if this is interrupted, a later clean-up finds the others by it.
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


class AssertLastSequenceNumber(ValidatableTableRequirement):
    """The requirement that the table's last sequence number is still the one that a snapshot was built on.

    The catalogs that PyIceberg itself implements check it in the same compare-and-swap as the other requirements;
    without it two branches of a version 3 table could get the same sequence number. REST catalogs check on their own.
    """

    type: Literal["assert-last-sequence-number"] = Field(default="assert-last-sequence-number")
    last_sequence_number: int = Field(alias="last-sequence-number")

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Raise CommitFailedException if another snapshot was committed, on any branch."""
        found = None if base_metadata is None else last_sequence_number(base_metadata)
        if found != self.last_sequence_number:
            raise CommitFailedException(
                f"Requirement failed: last sequence number has changed: "
                f"expected {self.last_sequence_number}, found {found}"
            )


def last_sequence_number(metadata: TableMetadata) -> int:
    """Return the table's highest sequence number; 0 in version 1."""
    return getattr(metadata, "last_sequence_number", 0)
