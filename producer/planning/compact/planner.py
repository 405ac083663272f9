"""Planning of a compaction: which data files are rewritten, in which groups, bundled into units."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from producer.common.sizes import count_text, size_text
from producer.iceberg.delete_file_index import DanglingDeletes, DeleteFileIndex
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.iceberg.partitions import PartitionKey
from producer.model.plan import Plan, Strategy, Unit, UnitHeader
from producer.planning.compact.file_groups import (
    CandidateEvaluator,
    RewriteCandidate,
    RewriteFileGroup,
    describe,
    in_order,
    qualifies,
    split,
    truncate,
)
from producer.planning.compact.options import Options, Tier
from producer.planning.compact.rewrite_options import resolve
from producer.planning.partition_filter import PartitionFilter
from producer.planning.units import PartitionOrder, PlanWithUnits, UnitBuilder, bundle, bundle_label, refusal_summary


class CompactionPlanner:
    """Plans one compaction; its steps share what was read of the snapshot.

    Files are grouped by partition. Files of specs other than the output spec form one group together, which also takes
    every other candidate: each of them may have rows for any partition, so that apart they would leave a small file
    each in every partition, to be rewritten once more. A group is split only where ``max-file-group-size-bytes``
    demands it, and units never share a group: the engine works on its files in parallel, and needs all of them to
    choose how many files it writes.

    Small groups of several partitions are bundled into one unit, up to what a unit reads. A conflict costs the unit, so
    that the other groups of its bundle are planned again too: that is less work than a unit for each group.

    The arguments are those of :class:`~producer.planning.definition.PlanOperation`; a later round works on data files.
    """

    def __init__(self, table: Table, base: Plan, head: Snapshot, unit_bytes: int, only: frozenset[str] | None) -> None:
        self.options = Options.parse(base.request.options)
        self.rewrite = resolve(self.options, table.metadata)
        self.base = base.model_copy(update={"rewrite": self.rewrite})
        self.unit_bytes = unit_bytes
        self.only = only
        self.partition_filter = PartitionFilter(base.request.where, table.metadata)
        self.io = table.io
        manifests = read_manifest_list(table.io, head)
        self.data_manifests = [m for m in manifests if m.content == ManifestContent.DATA]
        self.deletes = list(read_manifests(table.io, (m for m in manifests if m.content == ManifestContent.DELETES)))
        self.index = DeleteFileIndex(self.deletes, table.metadata)
        self.builder = UnitBuilder(table.metadata, self.index, self.deletes)
        self.dangling = DanglingDeletes(table.metadata, self.deletes)
        self.data_files = self.selected = 0

    def plan(self) -> PlanWithUnits:
        """Return the plan and its units; an empty plan says why."""
        candidates = self._candidates()
        groups = [group for whole in self._partition_groups(candidates) for group in self._qualified(whole)]
        units = tuple(self._unit(number, bundled) for number, bundled in enumerate(self._bundles(groups)))
        # A later round works on what conflicted, and on nothing else.
        may_drop = self.rewrite.remove_dangling and (bool(units) or self.only is None)
        dangling = may_drop and any(self.dangling.is_dangling(delete) for delete in self.deletes)
        nothing = None if units else self._why_nothing(candidates, groups)
        headers = tuple(unit.header for unit in units)
        plan = self.base.model_copy(update={"units": headers, "dangling": dangling, "nothing": nothing})
        return PlanWithUnits(plan, units)

    def _candidates(self) -> dict[PartitionKey | None, list[RewriteCandidate]]:
        """Return the rewrite candidates by partition; those of other specs under None."""
        evaluator = CandidateEvaluator(self.rewrite, self.options, self.index)
        selects: dict[PartitionKey, bool] = {}
        candidates: dict[PartitionKey | None, list[RewriteCandidate]] = defaultdict(list)
        for file in read_manifests(self.io, self.data_manifests):
            self.dangling.add_data_file(file)
            self.data_files += 1
            key = file.partition_key
            if key not in selects:
                selects[key] = self.partition_filter.selects(file.spec_id, file.partition)
            if not selects[key] or (self.only is not None and file.path not in self.only):
                continue
            self.selected += 1
            if (candidate := evaluator.evaluate(file)) is not None:
                candidates[key if file.spec_id == self.rewrite.spec_id else None].append(candidate)
        return candidates

    def _partition_groups(
        self, partitions: dict[PartitionKey | None, list[RewriteCandidate]]
    ) -> Iterator[RewriteFileGroup]:
        """Yield a group of each partition's candidates, in the order in which they were added to the table."""
        orders: dict[PartitionKey, PartitionOrder] = {}

        def sort_key(candidate: RewriteCandidate) -> tuple[int, PartitionOrder, int, str]:
            file = candidate.file
            if file.partition_key not in orders:
                orders[file.partition_key] = self.builder.order(file)
            return file.spec_id, orders[file.partition_key], file.sequence_number, file.path

        other_specs = partitions.get(None, [])
        # A later round plans these apart: rows that move to other partitions conflict with more of what others write.
        if self.only is None and qualifies(other_specs, self.rewrite, self.options):
            partitions = {None: [candidate for candidates in partitions.values() for candidate in candidates]}
        groups = []
        for key, candidates in partitions.items():
            ordered = tuple(sorted(candidates, key=sort_key))
            others = len({candidate.file.partition_key for candidate in ordered}) - 1
            more = f" +{others} more" if others else ""
            label = self.builder.label(ordered[0].file) + more
            groups.append(RewriteFileGroup(label, ordered, routed=key is None))
        yield from sorted(groups, key=lambda group: (group.routed, group.label))

    def _qualified(self, whole: RewriteFileGroup) -> Iterator[RewriteFileGroup]:
        """Yield the groups of a partition that qualify, and apart from them the files that cannot be read."""
        for group in split(whole, self.options.max_file_group_size_bytes):
            if not qualifies(group.candidates, self.rewrite, self.options):
                continue
            refusals = self.builder.refusals(c.with_deletes for c in group.candidates)
            readable = tuple(c for c in group.candidates if c.file.path not in refusals)
            if qualifies(readable, self.rewrite, self.options):
                yield RewriteFileGroup(group.label, readable, group.routed)
            if refusals:
                refused = tuple(c for c in group.candidates if c.file.path in refusals)
                yield RewriteFileGroup(group.label, refused, group.routed, refusal_summary(refusals))

    def _bundles(self, groups: Sequence[RewriteFileGroup]) -> list[tuple[RewriteFileGroup, ...]]:
        """Return bundles of groups in the requested order; groups whose rows are routed stay apart."""
        order = self.options.rewrite_job_order
        refused = [(group,) for group in groups if group.refused is not None]
        ordered = in_order(((group,) for group in groups if group.refused is None), order)
        chosen = list(truncate((group for (group,) in ordered), self.rewrite, self.options))
        # No more than a group's limit: groups of one partition must not come together again.
        limit = min(self.unit_bytes, self.options.max_file_group_size_bytes)
        bundles = list(bundle([group for group in chosen if not group.routed], limit))
        bundles += [(group,) for group in chosen if group.routed]
        return [*in_order(bundles, order), *refused]

    def _unit(self, number: int, groups: tuple[RewriteFileGroup, ...]) -> Unit:
        candidates = [candidate for group in groups for candidate in group.candidates]
        files = [candidate.with_deletes for candidate in candidates]
        applied = self.builder.applied_deletes(files)
        refused = groups[0].refused
        read = sum(group.cost for group in groups) + sum(delete.content_size or delete.size for delete in applied.all)
        header = UnitHeader(
            number=number,
            label=bundle_label(groups),
            files=len(files),
            delete_files=len(applied.all),
            rows=sum(file.record_count for file, _ in files),
            delete_rows=sum(delete.record_count for delete in applied.all),
            cost=0 if refused else read,
            output=0 if refused else sum(candidate.live_size for candidate in candidates),
            why=describe(candidates, self.rewrite),
            refused=refused,
        )
        return self.builder.unit(header, files, applied)

    def _why_nothing(
        self, partitions: dict[PartitionKey | None, list[RewriteCandidate]], groups: list[RewriteFileGroup]
    ) -> str:
        candidates = [candidate for files in partitions.values() for candidate in files]
        if not self.data_files:
            return "there are no data files"
        if self.only is not None:
            return "the files that were left to rewrite are rewritten or removed already"
        if not self.selected:
            return f"--where selects none of {count_text(self.data_files, 'data file')}"
        if groups:
            return f"max-files-to-rewrite={self.options.max_files_to_rewrite} leaves no group that is worth it"
        if not candidates:
            min_size, max_size = size_text(self.rewrite.min_size), size_text(self.rewrite.max_size)
            sizes = f"below {min_size}"
            if self.options.tier is not Tier.MINOR:
                sizes = f"below {min_size} or above {max_size}, or has many deletes"
            return f"none of {count_text(self.selected, 'data file')} is {sizes}{self._sorting_hint()}"
        needed = count_text(self.options.min_input_files, "is needed", "are needed")
        return (
            f"no group qualifies: {describe(candidates, self.rewrite)} in {count_text(len(partitions), 'partition')}, "
            f"{needed} in one, or more than {size_text(self.rewrite.target_size)}{self._sorting_hint()}"
        )

    def _sorting_hint(self) -> str:
        """Return how files that need no rewrite can be brought into the requested order, if one is requested."""
        if self.rewrite.strategy is Strategy.BINPACK:
            return ""
        return "; to bring files that need no rewrite into this order as well, add rewrite-all (--rewrite-all)"


def expected_files(planned: PlanWithUnits) -> str:
    """Return how many data files a compaction writes, such as ``about 16 files``: each partition gets its own."""
    rewrite = planned.plan.rewrite
    assert rewrite is not None
    files, routed = 0, False
    for unit in planned.units:
        if unit.header.refused is not None:
            continue
        sizes = Counter[int | None]()
        for file in unit.data:
            sizes[file.scope if unit.scopes[file.scope].spec_id == rewrite.spec_id else None] += file.size
        routed |= None in sizes
        if None in sizes:  # all rows of the unit are routed, to partitions that the plan does not know
            sizes = Counter({None: sum(sizes.values())})
        live = unit.header.output / max(1, sum(sizes.values()))
        for size in sizes.values():
            files += max(1, int(size * live / rewrite.target_size), math.ceil(size * live / rewrite.max_size))
    return f"{'at least' if routed else 'about'} {count_text(files, 'file')}"
