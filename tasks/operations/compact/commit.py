"""What the commit of a compaction changes: data files are replaced, and deletes that reach none any more leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from producer.common.errors import Conflict
from producer.common.sizes import count_text
from producer.iceberg.delete_file_index import DanglingDeletes
from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.iceberg.partitions import decode_scope, partition_key
from producer.model.job import Failure
from producer.model.plan import Plan, Rewrite, Scope
from producer.model.staged import Staged, StagedDataFile
from producer.planning.planner import branch_head
from tasks.job.branch_head import BranchHead
from tasks.operations.base import Additions, NoChange, Replan, SnapshotChange
from tasks.operations.compact.conflicts import InputCheck, ManifestSummaries, ManifestSummary
from tasks.operations.delete_changes import DeleteChanges


class CompactionRules:
    """The rules of :mod:`tasks.operations.compact.conflicts`, for the staged units of one round, by number.

    A conflict costs its unit only.
    """

    def __init__(self, plan: Plan, staged: Mapping[int, Staged]) -> None:
        assert plan.rewrite is not None
        self._plan = plan
        self._rewrite: Rewrite = plan.rewrite
        self._staged = staged
        self._labels = {unit.number: unit.label for unit in plan.units}
        self._inputs = frozenset(path for unit in staged.values() for path in unit.inputs)
        self._changes = DeleteChanges()
        self._manifests: ManifestSummaries | None = None

    def change(self, table: Table, head: BranchHead) -> NoChange | SnapshotChange:
        """Return what may be committed on a head.

        Raises:
            Conflict: The partition spec of the staged files was removed.
        """
        decision = self.decide(table, head)
        if not decision.removed:
            return NoChange(replans=decision.replans, failures=decision.failures)
        return SnapshotChange(
            operation=Operation.REPLACE,  # no row changes
            removed=decision.removed,
            additions=decision.additions,
            replans=decision.replans,
            failures=decision.failures,
        )

    def decide(self, table: Table, head: BranchHead) -> CompactionChange:
        """Decide which units may be committed on a head, and which files leave with them."""
        if self._rewrite.spec_id not in table.metadata.specs():
            raise Conflict(f"partition spec {self._rewrite.spec_id} was removed")
        candidates = self._candidates(head)
        if not self._staged and not candidates:
            return CompactionChange(self._plan)
        if self._manifests is None:
            self._manifests = ManifestSummaries(head.io, self._wanted(head), self._plan.sequence_number)
        manifests = self._manifests.of(head.manifests)
        now = self._manifests.files(head.manifests)
        before = self._manifests.files(head.base_manifests)
        change = self._check(InputCheck(self._plan, table.metadata, head, self._changes, before, now), now)
        removed = [now[path] for unit in change.units for path in unit.inputs]
        vectors = [head.vectors[file.path] for file in removed if file.path in head.vectors]
        leaving = {vector.identity for vector in vectors}
        others = [delete for delete in candidates if delete.identity not in leaving]
        dangling = self._dangling(table, others, manifests, change.units)
        return replace(change, removed=(*removed, *vectors, *dangling))

    def replans_after(self, table: Table) -> tuple[Replan, ...]:
        """Return the units that a finished commit left out: their inputs are still live."""
        snapshot = branch_head(table, self._plan.request.branch)
        if snapshot is None:
            return ()
        manifests = ManifestSummaries(table.io, self._inputs, self._plan.sequence_number)
        live = manifests.files(BranchHead(table.io, self._plan, snapshot, snapshot).manifests).keys()
        return tuple(
            self._replan(number, "changed its data files")
            for number, unit in self._staged.items()
            if not live.isdisjoint(unit.inputs) and _miscounted(unit) is None
        )

    def _check(self, inputs: InputCheck, now: Mapping[str, LiveFile]) -> CompactionChange:
        units: list[Staged] = []
        replans: list[Replan] = []
        failures: list[Failure] = []
        claimed: set[str] = set()
        for number, unit in sorted(self._staged.items()):
            paths = (*unit.inputs, *(file.path for file in unit.data))
            if len({*paths} - claimed) < len(paths):
                failures.append(self._failure(number, "another unit has the same data files"))
            elif (reason := _miscounted(unit)) is not None:
                failures.append(self._failure(number, reason))
            elif (reason := inputs.conflict(unit)) is not None:
                replans.append(self._replan(number, reason))
            elif (counted := sum(now[path].record_count for path in unit.inputs)) != unit.read_rows:
                reason = f"its data files have {unit.read_rows:,} rows, its manifests say {counted:,}"
                failures.append(self._failure(number, reason))
            else:
                claimed.update(paths)
                units.append(unit)
        return CompactionChange(self._plan, tuple(units), tuple(replans), tuple(failures))

    def _candidates(self, head: BranchHead) -> list[LiveFile]:
        """Return the deletes of the plan's snapshot that are still live: newer ones stay in the table."""
        if not self._rewrite.remove_dangling:
            return []
        new = {delete.identity for delete in self._changes.added(head)}
        return [delete for delete in head.deletes if delete.identity not in new]

    def _wanted(self, head: BranchHead) -> frozenset[str]:
        """Return the data files to look for at the head: inputs, and those that deletes are for."""
        if not self._rewrite.remove_dangling:
            return self._inputs
        referenced = {path for delete in head.base_deletes if (path := delete.referenced_data_file) is not None}
        return self._inputs | referenced | {path for paths in self._named().values() for path in paths}

    def _named(self) -> dict[str, frozenset[str]]:
        """Return the data files that position delete files name, of those that were read."""
        return {path: frozenset(paths) for unit in self._staged.values() for path, paths in unit.named.items()}

    def _dangling(
        self, table: Table, candidates: list[LiveFile], manifests: Iterable[ManifestSummary], units: Iterable[Staged]
    ) -> list[LiveFile]:
        """Return deletes that reach nothing after the commit. Its outputs count: they may be as old as the inputs."""
        if not candidates:
            return []
        live, paths = DanglingDeletes(table.metadata, candidates), set()
        removed = {path for unit in units for path in unit.inputs}
        for manifest in manifests:
            for key, number in manifest.oldest.items():
                live.add_partition(key, number)
            for path, file in manifest.files.items():
                if path not in removed:
                    live.add_data_file(file)
                    paths.add(path)
        if self._rewrite.keep_sequence_number:  # else they are newer than any delete
            written = {unit.scopes[file.scope] for unit in units for file in unit.data}
            for scope in written:
                key = partition_key(scope.spec_id, decode_scope(table.metadata, scope))
                live.add_partition(key, self._plan.sequence_number)
        named = self._named()
        return [
            delete
            for delete in candidates
            if live.is_dangling(delete) or (delete.path in named and named[delete.path].isdisjoint(paths))
        ]

    def _replan(self, number: int, reason: str) -> Replan:
        rounds = count_text(self._plan.round + 1, "round")
        failure = self._failure(number, f"other writers {reason}; after {rounds} its files stay as they are")
        return Replan(frozenset(self._staged[number].inputs), failure)

    def _failure(self, number: int, reason: str) -> Failure:
        return Failure(unit=number, partition=self._labels.get(number, ""), reason=reason)


@dataclass(frozen=True)
class CompactionChange:
    """Units that may be committed, and what leaves with them."""

    plan: Plan
    units: tuple[Staged, ...] = ()
    replans: tuple[Replan, ...] = ()
    failures: tuple[Failure, ...] = ()
    removed: tuple[LiveFile, ...] = field(default=(), repr=False)

    def additions(self, table: Table, name: str) -> Additions:
        """Return the data files that were written."""
        partition_of = cache(partial(decode_scope, table.metadata))  # many files have the same scope
        return Additions(
            tuple(_data_file(partition_of, self.plan, unit, file) for unit in self.units for file in unit.data)
        )


def _miscounted(unit: Staged) -> str | None:
    """Return how rows were lost or added, or None if the counts agree: a miscounted unit must not be committed."""
    written = sum(file.records for file in unit.data)
    if written == unit.read_rows - unit.deleted_rows:
        return None
    return f"{unit.read_rows:,} rows were read, {unit.deleted_rows:,} of them deleted, and {written:,} were written"


def _data_file(partition_of: Callable[[Scope], Record], plan: Plan, unit: Staged, file: StagedDataFile) -> NewFile:
    assert plan.rewrite is not None
    scope = unit.scopes[file.scope]
    record = new_data_file(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        record_count=file.records,
        file_size_in_bytes=file.size,
        column_sizes=file.column_sizes,
        value_counts=file.value_counts,
        null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts,
        lower_bounds={field_id: bytes.fromhex(bound) for field_id, bound in file.lower_bounds.items()},
        upper_bounds={field_id: bytes.fromhex(bound) for field_id, bound in file.upper_bounds.items()},
        split_offsets=list(file.split_offsets) or None,
        # Every data file names its sort order; 0 is unsorted (spec, Sort Orders).
        sort_order_id=plan.rewrite.sort_order_id,
        partition=partition_of(scope),
    )
    return NewFile(record, scope.spec_id, plan.sequence_number if plan.rewrite.keep_sequence_number else None)
