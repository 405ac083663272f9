"""A branch's head as a commit sees it: what is live there, and what changed since the plan's snapshot."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot, ancestors_of

from producer.common.errors import Conflict
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import ManifestCache, read_manifest_list, read_manifests
from producer.iceberg.partitions import PartitionKey
from producer.model.plan import Plan
from producer.planning.planner import branch_head
from producer.state.commit_history import JOB, ROUND

#: Partition, data sequence number and equality ids: they decide which deletes apply to which data files.
Reach: TypeAlias = tuple[PartitionKey, int, tuple[int, ...]]


def reach_of(file: LiveFile) -> Reach:
    """Return what decides, beside the path, which deletes apply to which data files."""
    return file.partition_key, file.sequence_number, file.equality_ids


@dataclass(frozen=True)
class BranchHead:
    """The head of the plan's branch, compared with the plan's snapshot.

    Manifests that both share are not read: a file is removed only if its manifest is replaced, and added only if its
    manifest is new.
    """

    io: FileIO
    plan: Plan
    snapshot: Snapshot
    base: Snapshot
    #: Manifests that earlier attempts have read.
    cache: ManifestCache = field(default_factory=dict)
    #: The snapshots since the plan's, the head first.
    later_snapshots: tuple[Snapshot, ...] = ()

    @classmethod
    def of(cls, table: Table, plan: Plan, cache: ManifestCache | None = None) -> BranchHead:
        """Return the head of a freshly loaded table; the manifests that it reads are added to the cache.

        Raises:
            Conflict: The plan's snapshot is no ancestor of the head, or the format version has changed.
        """
        if table.metadata.format_version != plan.format_version:
            raise Conflict(f"the table was upgraded to format version {table.metadata.format_version}")
        snapshot = branch_head(table, plan.request.branch)
        later: list[Snapshot] = []
        for ancestor in ancestors_of(snapshot, table.metadata):  # ends where a snapshot has expired
            if ancestor.snapshot_id == plan.snapshot_id and snapshot is not None:
                return cls(table.io, plan, snapshot, ancestor, {} if cache is None else cache, tuple(later))
            later.append(ancestor)
        raise Conflict(f"snapshot {plan.snapshot_id} is no longer in the history of branch {plan.request.branch}")

    @cached_property
    def manifests(self) -> list[ManifestFile]:
        """All manifests of the head."""
        return read_manifest_list(self.io, self.snapshot)

    @cached_property
    def base_manifests(self) -> list[ManifestFile]:
        """All manifests of the plan's snapshot."""
        return read_manifest_list(self.io, self.base) if self.base is not self.snapshot else self.manifests

    @cached_property
    def deletes(self) -> list[LiveFile]:
        """All delete files and vectors that are live at the head."""
        return list(self._read(m for m in self.manifests if m.content == ManifestContent.DELETES))

    @cached_property
    def base_deletes(self) -> list[LiveFile]:
        """All delete files and vectors that were live at the plan's snapshot."""
        return list(self._read(m for m in self.base_manifests if m.content == ManifestContent.DELETES))

    @cached_property
    def equality_deletes(self) -> dict[str, LiveFile]:
        """Live equality delete files by path."""
        return {d.path: d for d in self.deletes if d.content == DataFileContent.EQUALITY_DELETES}

    @cached_property
    def position_deletes(self) -> dict[str, LiveFile]:
        """Live position delete files by path."""
        return {d.path: d for d in self.deletes if d.content == DataFileContent.POSITION_DELETES and not d.is_vector}

    @cached_property
    def vectors(self) -> dict[str, LiveFile]:
        """Live deletion vectors by the path of their data file."""
        return {d.referenced_data_file: d for d in self.deletes if d.is_vector and d.referenced_data_file is not None}

    @cached_property
    def added_data(self) -> list[LiveFile]:
        """Live data files that were added after the plan's snapshot, whatever data sequence number they claim.

        Where an entry does not tell when its file was added, the plan's snapshot tells whether it was live then.
        """
        return [file for file in self._in_new_manifests if self._is_new(file)]

    def _is_new(self, file: LiveFile) -> bool:
        number = file.file_sequence_number
        if number is not None:
            return number > self.plan.sequence_number
        return self._replaced_data.get(file.path) != reach_of(file)

    @cached_property
    def removed_data(self) -> frozenset[str]:
        """Data files that were live at the plan's snapshot and are no longer."""
        return frozenset(self._replaced_data) - {f.path for f in self._in_new_manifests}

    @cached_property
    def changed_data(self) -> frozenset[str]:
        """Data files that left and came back under their path, so that other deletes may apply to them now."""
        before = self._replaced_data
        return frozenset(f.path for f in self._in_new_manifests if before.get(f.path, reach_of(f)) != reach_of(f))

    @cached_property
    def changed_equality_deletes(self) -> frozenset[str]:
        """Equality deletes that left and came back under their path, and may apply to other data files now."""
        before = {d.path: reach_of(d) for d in self.base_deletes if d.content == DataFileContent.EQUALITY_DELETES}
        live = self.equality_deletes.items()
        return frozenset(path for path, d in live if before.get(path, reach_of(d)) != reach_of(d))

    @cached_property
    def _replaced_data(self) -> dict[str, Reach]:
        """Data files that were live at the plan's snapshot, in manifests that the head no longer has."""
        live = {m.manifest_path for m in self.manifests}
        replaced = [m for m in self.base_manifests if m.content == ManifestContent.DATA and m.manifest_path not in live]
        return {f.path: reach_of(f) for f in self._read(replaced)}

    @cached_property
    def live_data(self) -> frozenset[str]:
        """Every live data file; reads all data manifests."""
        data = [m for m in self.manifests if m.content == ManifestContent.DATA]
        return frozenset(f.path for f in read_manifests(self.io, data))

    @cached_property
    def _in_new_manifests(self) -> list[LiveFile]:
        data = (m for m in self.manifests if m.content == ManifestContent.DATA)
        return list(self._read(m for m in data if m.sequence_number > self.plan.sequence_number))

    def _read(self, manifests: Iterable[ManifestFile]) -> Iterator[LiveFile]:
        return read_manifests(self.io, manifests, cache=self.cache)


def round_snapshot(table: Table, plan: Plan) -> Snapshot | None:
    """Return the snapshot that this round has made already, wherever it is in the branch's history, or None."""
    for ancestor in ancestors_of(branch_head(table, plan.request.branch), table.metadata):
        summary = ancestor.summary
        if summary is not None and summary[JOB] == plan.request.job and summary[ROUND] == str(plan.round):
            return ancestor
        if ancestor.snapshot_id == plan.snapshot_id:
            return None
    return None


def added_files(
    io: FileIO, snapshot: Snapshot, contents: Container[ManifestContent] = frozenset(ManifestContent)
) -> list[LiveFile]:
    """Return the files that a snapshot added, of the given contents only."""
    new = (m for m in read_manifest_list(io, snapshot) if m.added_snapshot_id == snapshot.snapshot_id)
    files = read_manifests(io, [m for m in new if m.content in contents])
    return [file for file in files if file.snapshot_id == snapshot.snapshot_id]
