"""What the commit of a conversion changes: delete files and vectors are added, equality deletes leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, partial

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from producer.common.sizes import count_text
from producer.iceberg.manifest_entry import FILE_PATH_ID, NewFile, new_data_file
from producer.iceberg.partitions import decode_scope
from producer.model.job import Failure
from producer.model.plan import Plan, VectorRef
from producer.model.staged import Staged, StagedDeleteFile, StagedVector
from producer.planning.planner import branch_head
from tasks.job.branch_head import BranchHead
from tasks.job.pending_commit import merged_vectors_path
from tasks.operations.base import Additions, NoChange, Replan, SnapshotChange
from tasks.operations.convert.conflicts import Decision, UnitOf, decide, outdated_files
from tasks.operations.delete_changes import DeleteChanges
from workers.formats.position_deletes import POS_ID
from workers.formats.puffin import PuffinWriter, read_vector


@dataclass(frozen=True)
class ConversionRules:
    """The rules of :mod:`tasks.operations.convert.conflicts`, for the units of one round that are staged."""

    plan: Plan
    staged: Mapping[int, Staged]
    #: Reads the record of a unit.
    unit_of: UnitOf
    changes: DeleteChanges = field(default_factory=DeleteChanges)

    def change(self, table: Table, head: BranchHead) -> NoChange | SnapshotChange:
        """Return what may be committed on a head.

        Raises:
            Corrupt: the record of a unit is needed, and is missing or cannot be read.
        """
        outdated = outdated_files(self.plan, self.staged, self.unit_of, head, self.changes)
        decision = decide(self.plan, self.staged, head, outdated)
        replans = self._replans(decision.again)
        if decision.empty:
            return NoChange(replans=replans)
        return SnapshotChange(
            # Never `replace`: other engines' compactions look for new deletes in the other kinds only.
            operation=Operation.DELETE if decision.adds else Operation.OVERWRITE,
            removed=decision.retired + decision.superseded,
            additions=partial(_additions, self.plan, decision),
            replans=replans,
        )

    def replans_after(self, table: Table) -> tuple[Replan, ...]:
        """Return equality deletes that a finished commit could have retired and did not: their scope had changed."""
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
        times = count_text(self.plan.round + 1, "time")
        return tuple(
            Replan(
                frozenset({r.path}),
                Failure(
                    unit=-1,
                    partition=r.scope.label if r.scope else "",
                    reason=f"other writers changed what {r.path} reaches, {times}; it stays in the table",
                ),
            )
            for r in self.plan.retirements
            if r.path in again
        )


def _additions(plan: Plan, decision: Decision, table: Table, name: str) -> Additions:
    """Return the staged delete files and vectors; a vector is merged with one that another writer has committed."""
    partition_of = cache(partial(decode_scope, table.metadata))  # many files have the same scope
    paths = (merged_vectors_path(table, plan, name),) if decision.merges else ()
    merged = [vector for path in paths for vector in _merge(table, decision, path)]
    deletes = ((unit.scopes[delete.scope], delete) for unit, delete in decision.deletes)
    vectors = ((unit.scopes[vector.scope], vector) for unit, vector in (*decision.vectors, *merged))
    files = (
        *(position_delete_file(delete, partition_of(scope), scope.spec_id) for scope, delete in deletes),
        *(vector_file(v.ref, v.size, v.target, partition_of(scope), scope.spec_id) for scope, v in vectors),
    )
    return Additions(files, paths)


def _merge(table: Table, decision: Decision, path: str) -> list[tuple[Staged, StagedVector]]:
    """Write the unions of staged vectors with those that other writers have committed, into one Puffin file."""
    merged: list[tuple[Staged, StagedVector]] = []
    with PuffinWriter(table.io, path) as writer:
        for unit, merge in decision.merges:
            staged = merge.staged
            vector = read_vector(table.io, staged.ref, staged.target)
            vector = vector.union(read_vector(table.io, merge.live, staged.target))
            offset, length = writer.add_vector(staged.target, vector)
            change = {"path": path, "offset": offset, "content_size": length, "cardinality": vector.cardinality}
            merged.append((unit, staged.model_copy(update=change)))
        size = writer.close()
    return [(unit, vector.model_copy(update={"size": size})) for unit, vector in merged]


def position_delete_file(delete: StagedDeleteFile, partition: Record, spec_id: int) -> NewFile:
    """Return the manifest entry of a position delete file."""
    record = new_data_file(
        content=DataFileContent.POSITION_DELETES,
        file_path=delete.path,
        file_format=FileFormat.PARQUET,
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
        partition=partition,
    )
    return NewFile(record, spec_id)


def vector_file(vector: VectorRef, file_size: int, target: str, partition: Record, spec_id: int) -> NewFile:
    """Return the manifest entry of a deletion vector; the size is that of its Puffin file."""
    record = new_data_file(
        content=DataFileContent.POSITION_DELETES,
        file_path=vector.path,
        file_format=FileFormat.PUFFIN,
        record_count=vector.cardinality,
        file_size_in_bytes=file_size,
        referenced_data_file=target,
        content_offset=vector.offset,
        content_size_in_bytes=vector.size,
        partition=partition,
    )
    return NewFile(record, spec_id)


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
