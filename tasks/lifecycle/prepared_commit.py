"""One commit attempt that is prepared and not yet sent: a snapshot, or updates of the metadata alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, AssertTableUUID

from producer.iceberg.snapshots import PendingSnapshot
from producer.model.job import Failure
from tasks.job.branch_head import BranchHead
from tasks.job.context import FileDeleter
from tasks.operations.base import Additions, MetadataChange, NoChange, Replan, SnapshotChange


@dataclass(frozen=True)
class CommitResult:
    """What the commit of a round has changed."""

    #: The snapshot that was made; the report's counters follow from its summary.
    snapshot: Snapshot | None = None
    #: Whether the table's metadata was changed without a snapshot.
    metadata_changed: bool = False
    #: Counters of the report that a commit without a snapshot adds to, by the report's field.
    counts: Mapping[str, int] = field(default_factory=dict)
    replans: tuple[Replan, ...] = ()
    #: Units whose staged work was not fit to be committed.
    failures: tuple[Failure, ...] = ()

    @classmethod
    def without_snapshot(cls, change: NoChange | MetadataChange, *, metadata_changed: bool) -> CommitResult:
        """Return the result of a change that makes no snapshot."""
        return cls(None, metadata_changed, change.counts, change.replans, change.failures)

    @property
    def changed(self) -> bool:
        """Whether the round is in the table."""
        return self.snapshot is not None or self.metadata_changed

    @property
    def paths_to_replan(self) -> frozenset[str]:
        """Paths of what must be planned again."""
        return frozenset(path for replan in self.replans for path in replan.paths)


@dataclass(frozen=True)
class PreparedSnapshotCommit:
    """A snapshot whose files are written."""

    change: SnapshotChange
    additions: Additions
    pending: PendingSnapshot
    #: Deletes the files of this attempt.
    deleter: FileDeleter

    def commit(self) -> CommitResult:
        """Send the snapshot once.

        Raises:
            CommitFailedException: The table has changed; the attempt is definitely not in the table.
            Exception: The outcome is unknown; delete nothing.
        """
        return CommitResult(self.pending.commit(), replans=self.change.replans, failures=self.change.failures)

    def discard(self) -> None:
        """Delete what was written for an attempt that is definitely not in the table.

        The first manifest goes last, since it leads to the other metadata files.
        """
        self.deleter.delete_in_order(reversed(self.pending.written))
        self.deleter.delete(self.additions.written)


@dataclass(frozen=True)
class PreparedMetadataCommit:
    """Updates of the metadata without a snapshot; nothing is written for them before the commit."""

    table: Table
    head: BranchHead
    change: MetadataChange

    def commit(self) -> CommitResult:
        """Send the updates once, required to meet the table and the head that they were decided on; raises as above."""
        requirements = (
            AssertTableUUID(uuid=self.table.metadata.table_uuid),
            AssertRefSnapshotId(ref=self.head.plan.request.branch, snapshot_id=self.head.snapshot.snapshot_id),
            *self.change.requirements,
        )
        self.table.catalog.commit_table(self.table, requirements, self.change.updates)
        return CommitResult.without_snapshot(self.change, metadata_changed=True)

    def find(self, table: Table) -> CommitResult | None:
        """Return the result if the metadata has the updates."""
        is_applied = self.change.is_applied(table.metadata)
        return CommitResult.without_snapshot(self.change, metadata_changed=True) if is_applied else None

    def discard(self) -> None:
        """Delete nothing: no file was written."""


#: One attempt, ready to be sent to the catalog.
PreparedCommit: TypeAlias = PreparedSnapshotCommit | PreparedMetadataCommit
