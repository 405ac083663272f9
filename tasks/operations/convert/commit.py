"""What the commit of a conversion changes: delete files and vectors come, equality deletes go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import FILE_PATH_ID, LiveFile, NewFile, new_data_file
from producer.iceberg.partitions import ScopeDecoder
from producer.model.job import Failure
from producer.model.plan import Plan
from producer.model.staged import Staged, StagedDeleteFile, StagedVector
from producer.planning.planner import branch_head
from tasks.job.branch_head import BranchHead
from tasks.job.pending_commit import merged_vectors_path
from tasks.operations.base import Additions, NoChange, Replan, SnapshotChange
from tasks.operations.compact.since import DeletesSince
from tasks.operations.convert.conflicts import Decision, Merge, decide
from tasks.operations.outdated import UnitOf, outdated_files
from workers.formats.position_deletes import POS_ID
from workers.formats.puffin import PuffinWriter, read_vector


@dataclass(frozen=True)
class ConversionRules:
    """The rules of :mod:`tasks.operations.convert.conflicts`, for the units of one round that are staged."""

    plan: Plan
    staged: Mapping[int, Staged]
    #: Reads what a unit was made of.
    unit_of: UnitOf
    since: DeletesSince = field(default_factory=DeletesSince)

    def change(self, table: Table, head: BranchHead) -> NoChange | SnapshotChange:
        """Return what may be committed on a head.

        Raises:
            Corrupt: the record of a unit is needed, and is missing or cannot be read.
        """
        outdated = outdated_files(self.plan, self.staged, self.unit_of, head, self.since)
        decision = decide(self.plan, self.staged, head, outdated)
        replans = self._replans(decision.again)
        if decision.empty:
            return NoChange(replans=replans)
        change = ConversionChange(self.plan, decision)
        return SnapshotChange(
            operation=change.operation, removed=change.removed, additions=change.additions, replans=replans
        )

    def replans_after(self, table: Table) -> tuple[Replan, ...]:
        """Equality deletes that a finished commit could have retired and did not, since their scope had changed."""
        snapshot = branch_head(table, self.plan.request.branch)
        # Whatever has become of the table since: the commit has happened.
        live = BranchHead(table.io, self.plan, snapshot, snapshot).equality_deletes if snapshot is not None else {}
        return self._replans(
            frozenset(
                r.path
                for r in self.plan.retirements
                if r.complete and self.staged.keys() >= set(r.units) and r.path in live
            )
        )

    def _replans(self, again: frozenset[str]) -> tuple[Replan, ...]:
        times = self.plan.round + 1
        return tuple(
            Replan(
                frozenset({r.path}),
                Failure(
                    unit=-1,
                    partition=r.scope.label if r.scope else "",
                    reason=f"other writers changed what {r.path} reaches, {times} times; it stays in the table",
                ),
            )
            for r in self.plan.retirements
            if r.path in again
        )


@dataclass(frozen=True)
class ConversionChange:
    """A decision, as a snapshot's change."""

    plan: Plan
    decision: Decision

    @property
    def operation(self) -> Operation:
        """Never `replace`: other engines' compactions look for new deletes in the other kinds only."""
        return Operation.DELETE if self.decision.adds else Operation.OVERWRITE

    @property
    def removed(self) -> tuple[LiveFile, ...]:
        """Equality deletes that were converted, and what the new files hold too."""
        return self.decision.retired + self.decision.superseded

    def additions(self, table: Table, name: str) -> Additions:
        """Position delete files and vectors; those that somebody else wrote a vector for meanwhile are merged."""
        partitions = ScopeDecoder(table.metadata)
        merged, written = self._merge(table, partitions, name)
        return Additions(
            (
                *(
                    position_delete_file(delete, partitions.decode(scope), scope.spec_id)
                    for unit, delete in self.decision.deletes
                    for scope in (unit.scopes[delete.scope],)
                ),
                *(_vector(partitions, unit, vector) for unit, vector in self.decision.vectors),
                *merged,
            ),
            written,
        )

    def _merge(self, table: Table, partitions: ScopeDecoder, name: str) -> tuple[list[NewFile], tuple[str, ...]]:
        """Write the unions of staged vectors with those that were committed meanwhile, into one Puffin file."""
        if not self.decision.merges:
            return [], ()
        path = merged_vectors_path(table, self.plan, name)
        written: list[tuple[Staged, Merge, int, int, int]] = []
        writer = PuffinWriter(table.io, path)
        with writer:
            for unit, merge in self.decision.merges:
                target = merge.staged.target
                staged = read_vector(table.io, merge.staged.ref, target)
                vector = staged.union(read_vector(table.io, merge.live, target))
                written.append((unit, merge, *writer.add_vector(target, vector), vector.cardinality))
            size = writer.close()
        changes = [
            {"path": path, "size": size, "offset": offset, "content_size": length, "cardinality": cardinality}
            for _, _, offset, length, cardinality in written
        ]
        merged = [
            _vector(partitions, unit, merge.staged.model_copy(update=change))
            for (unit, merge, *_), change in zip(written, changes, strict=True)
        ]
        return merged, (path,)


def position_delete_file(delete: StagedDeleteFile, partition: Record, spec_id: int) -> NewFile:
    """Return the manifest entry of a position delete file."""
    return NewFile(
        new_data_file(
            content=DataFileContent.POSITION_DELETES,
            file_path=delete.path,
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=delete.records,
            file_size_in_bytes=delete.size,
            column_sizes=delete.column_sizes,
            value_counts={FILE_PATH_ID: delete.records, POS_ID: delete.records},
            null_value_counts={FILE_PATH_ID: 0, POS_ID: 0},
            # In full: a truncated path would make a delete of one file one of a whole partition.
            lower_bounds={FILE_PATH_ID: delete.lower[0].encode(), POS_ID: _long(delete.lower[1])},
            upper_bounds={FILE_PATH_ID: delete.upper[0].encode(), POS_ID: _long(delete.upper[1])},
            split_offsets=list(delete.split_offsets),
            referenced_data_file=delete.targets[0] if len(delete.targets) == 1 else None,
        ),
        spec_id,
    )


def _vector(partitions: ScopeDecoder, unit: Staged, vector: StagedVector) -> NewFile:
    scope = unit.scopes[vector.scope]
    return NewFile(
        new_data_file(
            content=DataFileContent.POSITION_DELETES,
            file_path=vector.path,
            file_format=FileFormat.PUFFIN,
            partition=partitions.decode(scope),
            record_count=vector.cardinality,
            file_size_in_bytes=vector.size,
            referenced_data_file=vector.target,
            content_offset=vector.offset,
            content_size_in_bytes=vector.content_size,
        ),
        scope.spec_id,
    )


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
