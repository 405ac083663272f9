"""Whether the inputs of a compaction are unchanged at the head since it was planned: the rules of a correct one.

Of a million data files a commit keeps only the few that it asks for, and a number for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from producer.iceberg.delete_file_index import DeleteFileIndex
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import ManifestKey, manifest_key, read_manifests
from producer.iceberg.partitions import PartitionKey, decode_scope, is_unpartitioned, partition_key
from producer.model.plan import Plan, Rewrite
from producer.model.staged import Staged
from tasks.job.branch_head import BranchHead
from tasks.operations.delete_changes import DeleteChanges


class InputCheck:
    """Compares the inputs of a round's units that were live at the plan's snapshot with those live at the head."""

    def __init__(
        self,
        plan: Plan,
        metadata: TableMetadata,
        head: BranchHead,
        changes: DeleteChanges,
        before: Mapping[str, LiveFile],
        now: Mapping[str, LiveFile],
    ) -> None:
        assert plan.rewrite is not None
        self._plan = plan
        self._rewrite: Rewrite = plan.rewrite
        self._metadata = metadata
        self._io = head.io
        self._changes = changes
        self._before = before
        self._now = now
        self._added = DeleteFileIndex(changes.added(head), metadata)
        self._removed = DeleteFileIndex(changes.removed(head), metadata)
        self._with_vector = frozenset(d.referenced_data_file for d in head.base_deletes if d.is_vector)
        added, live = changes.added_equality(head), head.equality_deletes
        not_in_outputs = (delete for delete in added if delete.path not in live or not self._reaches_outputs(delete))
        self._not_in_outputs = DeleteFileIndex(not_in_outputs, metadata)
        unpartitioned = {spec.spec_id for spec in metadata.partition_specs if is_unpartitioned(spec)}
        self._scoped = DeleteFileIndex((d for d in added if d.spec_id not in unpartitioned), metadata)

    def conflict(self, unit: Staged) -> str | None:
        """Return what other writers did that keeps a unit from being committed, or None if it may be.

        A unit is committed only while the rows of its inputs are those that it wrote, and while what deletes rows of
        its inputs will go on to delete them in its outputs, and nothing else does.
        """
        for path in unit.inputs:
            before, now = self._before.get(path), self._now.get(path)
            if before is None or now is None:
                return f"removed {path}"
            if _identity(before) != _identity(now):
                return f"moved {path}"
            if self._positions_changed(before, unit):
                return f"changed which rows of {path} are deleted by position"
            if self._keys_changed(before, unit):
                return f"changed which rows of {path} are deleted by key"
        if self._reaches_others(unit):
            return "deleted keys where its rows go, but not where they are"
        return None

    def _positions_changed(self, file: LiveFile, unit: Staged) -> bool:
        if self._added.deletion_vector(file) is not None or self._removed.deletion_vector(file) is not None:
            return True
        if file.path in self._with_vector:
            return False  # which takes the place of all position deletes
        return any(
            self._changes.names(self._io, delete, file.path) for delete in self._added.position_deletes(file)
        ) or any(
            delete.referenced_data_file is not None or file.path in unit.named.get(delete.path, (file.path,))
            for delete in self._removed.position_deletes(file)
        )

    def _keys_changed(self, file: LiveFile, unit: Staged) -> bool:
        if _reaches(self._not_in_outputs, file):
            return True
        # One that was withdrawn deletes nothing any more; one that was converted has left positions, unless no row
        # had its keys.
        if unit.deleted_rows and _reaches(self._removed, file):
            return True
        return file.spec_id != self._rewrite.spec_id and _reaches(self._scoped, file)

    def _reaches_others(self, unit: Staged) -> bool:
        """Return whether equality deletes for the outputs' partitions may reach rows that come from elsewhere."""
        if not self._rewrite.keep_sequence_number:
            return False
        moved = [f for f in (self._before[path] for path in unit.inputs) if f.spec_id != self._rewrite.spec_id]
        scopes = {partition_key(scope.spec_id, decode_scope(self._metadata, scope)) for scope in unit.scopes}
        return any(
            group.scope in scopes and any(group.may_match(file, 0) for file in moved) for group in self._scoped.groups
        )

    def _reaches_outputs(self, delete: LiveFile) -> bool:
        """Return whether the number of an equality delete that was added since lets it reach what was written."""
        return self._rewrite.keep_sequence_number and delete.sequence_number > self._plan.sequence_number


def _reaches(index: DeleteFileIndex, file: LiveFile) -> bool:
    return any(reach.group.may_match(file, reach.start) for reach in index.equality_deletes(file))


def _identity(file: LiveFile) -> tuple[PartitionKey, int, int | None]:
    """Return what must stay the same of an input; rows are known by their ids if they have any (spec, Row Lineage)."""
    return file.partition_key, file.sequence_number, file.first_row_id


@dataclass(frozen=True)
class ManifestSummary:
    """What a commit keeps of one data manifest."""

    #: The live files that were asked for, by path.
    files: dict[str, LiveFile] = field(default_factory=dict)
    #: The lowest data sequence number of the others, by partition.
    oldest: dict[PartitionKey, int] = field(default_factory=dict)


class ManifestSummaries:
    """Reads each data manifest once, however many attempts a commit takes.

    Files are asked for by path. Manifests that hold nothing but files with data sequence numbers above ``newest`` are
    left out: they came after what is asked for.
    """

    def __init__(self, io: FileIO, wanted: frozenset[str], newest: int) -> None:
        self._io = io
        self._wanted = wanted
        self._newest = newest
        self._summaries: dict[ManifestKey, ManifestSummary] = {}

    def of(self, manifests: Iterable[ManifestFile]) -> list[ManifestSummary]:
        """Return the summaries of those data manifests that are not left out."""
        old = [
            m for m in manifests if m.content == ManifestContent.DATA and (m.min_sequence_number or 0) <= self._newest
        ]
        unknown = [m for m in old if manifest_key(m) not in self._summaries]
        files = read_manifests(self._io, unknown)
        # Files come manifest by manifest; of one without live files none does.
        read = {number: self._summary(group) for number, group in groupby(files, key=lambda file: id(file.manifest))}
        self._summaries.update((manifest_key(m), read.get(id(m), ManifestSummary())) for m in unknown)
        return [self._summaries[manifest_key(m)] for m in old]

    def files(self, manifests: Iterable[ManifestFile]) -> Mapping[str, LiveFile]:
        """Return the files that were asked for and are live in some manifests, by path."""
        return {path: file for summary in self.of(manifests) for path, file in summary.files.items()}

    def _summary(self, files: Iterable[LiveFile]) -> ManifestSummary:
        summary = ManifestSummary()
        for file in files:
            if file.path in self._wanted:
                summary.files[file.path] = file
            else:
                key, number = file.partition_key, file.sequence_number
                summary.oldest[key] = min(number, summary.oldest.get(key, number))
        return summary
