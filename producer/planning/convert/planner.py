"""Planning of a conversion: which data files equality deletes reach, cut into units, and which deletes may leave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from producer.iceberg.delete_file_index import ApplicableDeletes, DeleteFileIndex, EqualityDeleteGroup
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.iceberg.partitions import PartitionKey
from producer.model.plan import Plan, Retirement, Unit, UnitHeader
from producer.planning.partition_filter import PartitionFilter
from producer.planning.units import (
    FileWithDeletes,
    PlanWithUnits,
    UnitBuilder,
    bundle,
    bundle_label,
    equality_deletes_of,
    refusal_summary,
)

#: Bytes of data that a group has at least for each byte of deletes. A byte of deletes costs about twice as much as one
#: of data: with less data, most of a unit's work would repeat that of the other units.
_DATA_PER_DELETES: Final = 4


@dataclass(frozen=True, slots=True)
class ConversionFileGroup:
    """Data files of one partition with the deletes that reach them."""

    #: The partition, for people.
    label: str
    files: tuple[FileWithDeletes, ...]
    #: Bytes that will be read, deletes included.
    cost: int
    refused: str | None = None


def split(
    group: ConversionFileGroup, costs: Mapping[str, int], deletes_cost: int, limit: int
) -> Iterator[ConversionFileGroup]:
    """Split a partition whose cost exceeds ``limit`` bytes into groups below it, or of a single file that is larger.

    Every group reads the partition's deletes (``deletes_cost`` bytes) again, so it has several times as many bytes of
    data. ``costs`` are the bytes to read of each data file, by path.
    """
    data_limit = max(limit - deletes_cost, _DATA_PER_DELETES * deletes_cost, 1)
    chunks: list[list[FileWithDeletes]] = []
    chunk_cost = 0
    for file in group.files:
        cost = costs[file[0].path]
        if not chunks or chunk_cost + cost > data_limit:
            chunks.append([])
            chunk_cost = 0
        chunks[-1].append(file)
        chunk_cost += cost
    for number, chunk in enumerate(chunks, 1):
        label = group.label if len(chunks) == 1 else f"{group.label} {number}/{len(chunks)}"
        cost = sum(costs[file.path] for file, _ in chunk) + deletes_cost
        yield replace(group, label=label, files=tuple(chunk), cost=cost)


class ConversionPlanner:
    """Plans one conversion; its steps share what was read of the snapshot.

    The arguments are those of :class:`~producer.planning.definition.PlanOperation`; a later round works on equality
    deletes.
    """

    def __init__(self, table: Table, base: Plan, head: Snapshot, unit_bytes: int, only: frozenset[str] | None) -> None:
        self.base = base
        self.unit_bytes = unit_bytes
        self.partition_filter = PartitionFilter(base.request.where, table.metadata)
        self.io = table.io
        self.manifests = read_manifest_list(table.io, head)
        deletes = read_manifests(table.io, [m for m in self.manifests if m.content == ManifestContent.DELETES])
        applicable = [
            delete
            for delete in deletes
            if delete.content != DataFileContent.EQUALITY_DELETES or only is None or delete.path in only
        ]
        self.index = DeleteFileIndex(applicable, table.metadata)
        self.builder = UnitBuilder(table.metadata, self.index, applicable)
        #: Groups of deletes that reach data files which the filter excludes, with the oldest sequence number of these.
        self.excluded: dict[EqualityDeleteGroup, int] = {}

    def plan(self) -> PlanWithUnits:
        """Return the plan and its units; an empty plan says why."""
        if not self.index.groups:
            return PlanWithUnits(self.base.model_copy(update={"nothing": "there are no equality deletes"}), ())
        bundles = list(bundle(self._file_groups(), self.unit_bytes))
        units = tuple(self._unit(number, groups) for number, groups in enumerate(bundles))
        retirements = self._retirements(bundles)
        plan = self.base.model_copy(update={"units": tuple(u.header for u in units), "retirements": retirements})
        if plan.empty:
            nothing = "no partition with equality deletes is selected"
            plan = plan.model_copy(update={"nothing": nothing, "retirements": ()})
        return PlanWithUnits(plan, units)

    def _files_with_deletes(self) -> dict[PartitionKey, list[FileWithDeletes]]:
        """Return the data files that some equality delete may remove a row of, by partition."""
        newest = self.index.max_equality_sequence_number
        # No delete reaches a manifest whose oldest file is as new as the newest delete.
        older = [
            m for m in self.manifests if m.content == ManifestContent.DATA and (m.min_sequence_number or 0) < newest
        ]
        found: dict[PartitionKey, list[FileWithDeletes]] = defaultdict(list)
        for file in read_manifests(self.io, older):
            deletes = tuple(self.index.equality_deletes(file))
            if not deletes:
                continue
            if not self.partition_filter.selects(file.spec_id, file.partition):
                for applicable in deletes:
                    oldest = self.excluded.get(applicable.group, file.sequence_number)
                    self.excluded[applicable.group] = min(oldest, file.sequence_number)
                continue
            deletes = tuple(applicable for applicable in deletes if applicable.group.may_match(file, applicable.start))
            if deletes:
                found[file.partition_key].append((file, deletes))
        return found

    def _file_groups(self) -> Iterator[ConversionFileGroup]:
        by_partition = self._files_with_deletes()
        for key in sorted(by_partition, key=lambda key: self.builder.order(by_partition[key][0][0])):
            files = sorted(by_partition[key], key=lambda item: item[0].path)
            label = self.builder.label(files[0][0])
            refusals = self.builder.refusals(files)
            readable = tuple(item for item in files if item[0].path not in refusals)
            if readable:
                costs = {file.path: self._cost(file, deletes) for file, deletes in readable}
                deletes_cost = sum(delete.size for delete, _ in equality_deletes_of(readable))
                group = ConversionFileGroup(label, readable, sum(costs.values()) + deletes_cost)
                yield from split(group, costs, deletes_cost, self.unit_bytes)
            if refusals:
                refused = tuple(item for item in files if item[0].path in refusals)
                yield ConversionFileGroup(label, refused, 0, refusal_summary(refusals))

    def _cost(self, file: LiveFile, deletes: Sequence[ApplicableDeletes]) -> int:
        """Return the bytes of the key columns to read, or of the whole file if the manifest has no column sizes."""
        ids = {field_id for applicable in deletes for field_id in applicable.group.equality_ids}
        sizes = file.data_file.column_sizes or {}
        return sum(sizes[i] for i in ids) if ids <= sizes.keys() else file.size

    def _unit(self, number: int, groups: tuple[ConversionFileGroup, ...]) -> Unit:
        files = [item for group in groups for item in group.files]
        applied = self.builder.applied_deletes(files)
        header = UnitHeader(
            number=number,
            label=bundle_label(groups),
            files=len(files),
            delete_files=len(applied.equality),
            rows=sum(file.record_count for file, _ in files),
            delete_rows=sum(delete.record_count for delete, _ in applied.equality),
            cost=sum(group.cost for group in groups),
            refused=groups[0].refused,
        )
        return self.builder.unit(header, files, applied)

    def _retirements(self, bundles: Sequence[tuple[ConversionFileGroup, ...]]) -> tuple[Retirement, ...]:
        units_of: dict[str, list[int]] = defaultdict(list)
        for number, groups in enumerate(bundles):
            for delete, _ in equality_deletes_of(item for group in groups for item in group.files):
                units_of[delete.path].append(number)
        return tuple(
            Retirement(
                path=delete.path,
                sequence_number=delete.sequence_number,
                scope=None if group.scope is None else self.builder.scope(delete),
                units=tuple(units_of[delete.path]),
                complete=self._complete(group, delete),
            )
            for group in self.index.groups
            for delete in group.deletes
            if self._is_requested(group, delete, units_of)
        )

    def _is_requested(self, group: EqualityDeleteGroup, delete: LiveFile, units_of: dict[str, list[int]]) -> bool:
        """Return whether the request covers a delete: a unit applies it, or its partition is selected."""
        if delete.path in units_of or self.partition_filter.selects_all:
            return True
        return group.scope is not None and self.partition_filter.selects(delete.spec_id, delete.partition)

    def _complete(self, group: EqualityDeleteGroup, delete: LiveFile) -> bool:
        """Return whether the request covers every data file that a delete reaches."""
        oldest = self.excluded.get(group) if group.scope is None else None
        return oldest is None or oldest >= delete.sequence_number
