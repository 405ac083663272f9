"""Snapshots: the summary of one, and the commit of one that is written, as one compare-and-swap."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
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

from producer.iceberg.manifest_entry import DATA_FILE_POSITIONS
from producer.iceberg.partitions import PartitionKey
from producer.iceberg.pyiceberg_metadata import enable_version_3
from producer.storage.files import delete_in_order

_CONTENT_SIZE: Final = DATA_FILE_POSITIONS["content_size_in_bytes"]

#: Each total, the count that adds to it and the count that is subtracted.
_TOTALS: Final = (
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-delete-files", "added-delete-files", "removed-delete-files"),
    ("total-records", "added-records", "deleted-records"),
    ("total-files-size", "added-files-size", "removed-files-size"),
    ("total-position-deletes", "added-position-deletes", "removed-position-deletes"),
    ("total-equality-deletes", "added-equality-deletes", "removed-equality-deletes"),
)

enable_version_3()


@dataclass(frozen=True)
class PendingSnapshot:
    """A snapshot whose manifests are on storage; no reader sees it before it is committed."""

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
            change = f"expected {self.last_sequence_number}, found {found}"
            raise CommitFailedException(f"Requirement failed: last sequence number has changed: {change}")


def last_sequence_number(metadata: TableMetadata) -> int:
    """Return the table's highest sequence number; 0 in version 1."""
    return getattr(metadata, "last_sequence_number", 0)


def summarize(
    added: Iterable[tuple[PartitionKey, DataFile]],
    removed: Iterable[tuple[PartitionKey, DataFile]],
    parent: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return the summary of a change without its operation; counts of zero are left out, totals are not.

    A total is the parent's, plus what is added, minus what is removed. If the parent lacks a total, so does the new
    summary. ``parent`` is the parent snapshot's summary, empty if it has none; None for the first snapshot, whose
    totals start from zero.
    """
    counts: Counter[str] = Counter()
    partitions = set()
    for sign, files in (("added", added), ("removed", removed)):
        for key, data_file in files:
            counts.update(_counts(sign, data_file))
            partitions.add(key)
    summary = {name: str(count) for name, count in counts.items() if count > 0}
    summary["changed-partition-count"] = str(len(partitions))
    for total, plus, minus in _TOTALS:
        before = 0 if parent is None else _number(parent.get(total))
        if before is not None and (after := before + counts[plus] - counts[minus]) >= 0:
            summary[total] = str(after)
    return summary


def _counts(sign: str, data_file: DataFile) -> dict[str, int]:
    blob: int | None = data_file[_CONTENT_SIZE]  # of a vector: several share a Puffin file
    size = {f"{sign}-files-size": data_file.file_size_in_bytes if blob is None else blob}
    if data_file.content == DataFileContent.DATA:
        verb = "added" if sign == "added" else "deleted"
        return {**size, f"{verb}-data-files": 1, f"{verb}-records": data_file.record_count}
    if data_file.content == DataFileContent.EQUALITY_DELETES:
        kind, deletes = "equality-delete-files", "equality-deletes"
    elif data_file.file_format == FileFormat.PUFFIN:
        kind, deletes = "dvs", "position-deletes"
    else:
        kind, deletes = "position-delete-files", "position-deletes"
    return {**size, f"{sign}-delete-files": 1, f"{sign}-{kind}": 1, f"{sign}-{deletes}": data_file.record_count}


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
