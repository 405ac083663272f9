"""Whether the inputs of a compaction are at the head what they were when it was planned: the rules of a right one."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table.metadata import TableMetadata

from producer.iceberg.delete_file_index import DeleteFileIndex
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.partitions import PartitionKey, decode_scope, is_unpartitioned, partition_key
from producer.model.plan import Plan, Rewrite
from producer.model.staged import Staged
from tasks.job.branch_head import BranchHead
from tasks.operations.compact.since import DeletesSince


class Inputs:
    """The inputs of a round's units, compared.

    Args:
        plan: The round.
        metadata: The table's, as it was loaded for this attempt.
        head: The branch's head in it.
        since: The deletes that came and went meanwhile.
        before: The inputs that were live at the plan's snapshot, by path.
        now: Those that are live at the head.
    """

    def __init__(
        self,
        plan: Plan,
        metadata: TableMetadata,
        head: BranchHead,
        since: DeletesSince,
        before: Mapping[str, LiveFile],
        now: Mapping[str, LiveFile],
    ) -> None:
        assert plan.rewrite is not None
        self._plan = plan
        self._rewrite: Rewrite = plan.rewrite
        self._metadata = metadata
        self._io = head.io
        self._since = since
        self._before = before
        self._now = now
        self._new = DeleteFileIndex(since.new(head), metadata)
        self._gone = DeleteFileIndex(since.gone(head), metadata)
        self._with_vector = frozenset(d.referenced_data_file for d in head.base_deletes if d.is_vector)
        added = since.equality(head)
        live = head.equality_deletes
        lost = (delete for delete in added if delete.path not in live or not self._reaches_outputs(delete))
        self._lost = DeleteFileIndex(lost, metadata)
        unpartitioned = {spec.spec_id for spec in metadata.partition_specs if is_unpartitioned(spec)}
        self._scoped = DeleteFileIndex((d for d in added if d.spec_id not in unpartitioned), metadata)

    def conflict(self, unit: Staged) -> str | None:
        """What other writers did that keeps a unit from being committed; None when it may be.

        A unit is committed only while the rows of its inputs are those that it wrote, and while what deletes rows of
        its inputs will go on to delete them in its outputs, and nothing else does.
        """
        for path in unit.inputs:
            before, now = self._before.get(path), self._now.get(path)
            if before is None or now is None:
                return f"removed {path}"
            if _place(before) != _place(now):
                return f"moved {path}"
            if self._positions_changed(before, unit):
                return f"changed which rows of {path} are deleted by position"
            if self._keys_changed(before, unit):
                return f"changed which rows of {path} are deleted by key"
        if self._reaches_others(unit):
            return "deleted keys where its rows go, but not where they are"
        return None

    def _positions_changed(self, file: LiveFile, unit: Staged) -> bool:
        if self._new.deletion_vector(file) is not None or self._gone.deletion_vector(file) is not None:
            return True
        if file.path in self._with_vector:
            return False  # which takes the place of all position deletes
        return any(
            self._since.names(self._io, delete, file.path) for delete in self._new.position_deletes(file)
        ) or any(
            delete.referenced_data_file is not None or file.path in unit.named.get(delete.path, (file.path,))
            for delete in self._gone.position_deletes(file)
        )

    def _keys_changed(self, file: LiveFile, unit: Staged) -> bool:
        if _reaches(self._lost, file):
            return True
        # One that was withdrawn deletes nothing any more; one that was converted has left positions, unless no row
        # had its keys.
        if unit.deleted_rows and _reaches(self._gone, file):
            return True
        return file.spec_id != self._rewrite.spec_id and _reaches(self._scoped, file)

    def _reaches_others(self, unit: Staged) -> bool:
        """Whether equality deletes for the partitions of the outputs may reach rows that come from elsewhere."""
        if not self._rewrite.keep_sequence_number:
            return False
        moved = [f for f in (self._before[path] for path in unit.inputs) if f.spec_id != self._rewrite.spec_id]
        scopes = {partition_key(scope.spec_id, decode_scope(self._metadata, scope)) for scope in unit.scopes}
        return any(
            group.scope in scopes and any(group.may_match(file, 0) for file in moved) for group in self._scoped.groups
        )

    def _reaches_outputs(self, delete: LiveFile) -> bool:
        """Whether the number of an equality delete that was added since lets it reach what was written."""
        return self._rewrite.keep_sequence_number and delete.sequence_number > self._plan.sequence_number


def _reaches(index: DeleteFileIndex, file: LiveFile) -> bool:
    return any(reach.group.may_match(file, reach.start) for reach in index.equality_deletes(file))


def _place(file: LiveFile) -> tuple[PartitionKey, int, int | None]:
    """What must be the same of an input; its rows are known by their ids where there are any (spec, Row Lineage)."""
    return file.partition_key, file.sequence_number, file.first_row_id
