"""Planning of a compaction: which data files are rewritten, together with which others, cut into units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from producer.common.sizes import size_text
from producer.iceberg.dangling_deletes import LiveData
from producer.iceberg.delete_index import DeleteIndex
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.iceberg.partitions import PartitionKey
from producer.model.plan import Plan, Strategy, Unit, UnitHeader
from producer.model.wording import counted
from producer.planning import unit_sizes as sharing
from producer.planning.file_candidates import Candidate, Evaluator, explain
from producer.planning.file_groups import FileGroup, bundles_in_order, cut, in_order, truncated, worthwhile
from producer.planning.options import Options
from producer.planning.partition_filter import Selection
from producer.planning.rewrite_options import resolve
from producer.planning.units import PartitionOrder, Planned, UnitMaker, refused_label


class CompactionPlanning:
    """The planning of one compaction; its steps share what was read of the snapshot.

    Files are grouped by partition. Those of other specs than the one that is written under make one group together,
    and take in all that would be rewritten besides: each of them may have rows for any partition, so that apart they
    would leave a small file each in every one, to be rewritten once more. A group is cut only where
    ``max-file-group-size-bytes`` demands it, and is never shared by units: the engine works on its files side by side,
    and knows all of them when it chooses how many it writes.

    Small groups of several partitions are bundled into one unit, up to what a unit reads. A conflict costs the unit,
    and so the other groups of its bundle are planned again too: that is less work than a unit for each.

    Args:
        table: Freshly loaded.
        base: The plan without units.
        head: The snapshot that is planned from.
        unit_bytes: What is bundled at most.
        only: Paths of the data files that are left to do in a later round; None for all.

    Raises:
        Refused: the options do not fit the table.
    """

    def __init__(self, table: Table, base: Plan, head: Snapshot, unit_bytes: int, only: frozenset[str] | None) -> None:
        self.metadata: TableMetadata = table.metadata
        self.rewrite, self.thresholds = resolve(Options.parse(base.request.options), table.metadata)
        self.base = base.model_copy(update={"rewrite": self.rewrite})
        self.unit_bytes = unit_bytes
        self.only = only
        self.selection = Selection(base.request.where, table.metadata)
        self.io = table.io
        manifests = read_manifest_list(table.io, head)
        self.data_manifests = [m for m in manifests if m.content == ManifestContent.DATA]
        self.deletes = list(read_manifests(table.io, (m for m in manifests if m.content == ManifestContent.DELETES)))
        self.index = DeleteIndex(self.deletes, self.metadata)
        self.maker = UnitMaker(self.metadata, self.index, self.deletes)
        self.live = LiveData(self.metadata, self.deletes)
        self.data_files = self.selected = 0

    def planned(self) -> Planned:
        """The plan and its units; a plan that selects nothing says why."""
        partitions = self._candidates()
        groups = [group for whole in self._partitions(partitions) for group in self._readable(whole)]
        units = tuple(self._unit(number, bundle) for number, bundle in enumerate(self._bundles(groups)))
        # A later round does what conflicted, and nothing for its own sake.
        dangling = self._dangling() if units or self.only is None else False
        nothing = None if units else self._nothing(partitions, groups)
        headers = tuple(unit.header for unit in units)
        plan = self.base.model_copy(update={"units": headers, "dangling": dangling, "nothing": nothing})
        return Planned(plan, units)

    # -- from data files to groups ---------------------------------------------------------------------------

    def _candidates(self) -> dict[PartitionKey | None, list[Candidate]]:
        """The files that would be rewritten, by partition; those of other specs by None."""
        evaluator = Evaluator(self.thresholds, self.index)
        selects: dict[PartitionKey, bool] = {}
        found: dict[PartitionKey | None, list[Candidate]] = defaultdict(list)
        for file in read_manifests(self.io, self.data_manifests):
            self.live.add(file)
            self.data_files += 1
            key = file.partition_key
            if key not in selects:
                selects[key] = self.selection.selects(file.spec_id, file.partition)
            if not selects[key] or (self.only is not None and file.path not in self.only):
                continue
            self.selected += 1
            if (candidate := evaluator.judge(file)) is not None:
                found[key if file.spec_id == self.rewrite.spec_id else None].append(candidate)
        return found

    def _partitions(self, partitions: dict[PartitionKey | None, list[Candidate]]) -> Iterator[FileGroup]:
        """Each partition's candidates, in the order in which they came to the table."""
        orders: dict[PartitionKey, PartitionOrder] = {}

        def place(candidate: Candidate) -> tuple[int, PartitionOrder, int, str]:
            file = candidate.file
            if file.partition_key not in orders:
                orders[file.partition_key] = self.maker.order(file)
            return file.spec_id, orders[file.partition_key], file.sequence_number, file.path

        foreign = partitions.get(None, [])
        # What conflicted goes apart: rows that move to other partitions conflict with more of what others write.
        if self.only is None and worthwhile(foreign, self.thresholds):
            partitions = {None: [candidate for candidates in partitions.values() for candidate in candidates]}
        whole = []
        for key, candidates in partitions.items():
            ordered = tuple(sorted(candidates, key=place))
            others = len({candidate.file.partition_key for candidate in ordered}) - 1
            more = f" +{others} more" if others else ""
            label = self.maker.label(ordered[0].file) + more
            whole.append(FileGroup(label, ordered, routed=key is None))
        yield from sorted(whole, key=lambda group: (group.routed, group.label))

    def _readable(self, whole: FileGroup) -> Iterator[FileGroup]:
        """The groups of a partition that are worth it, and apart from them the files that cannot be read."""
        for group in cut(whole, self.thresholds.group_size):
            if not worthwhile(group.candidates, self.thresholds):
                continue
            refusals = {c.file.path: reason for c in group.candidates if (reason := self.maker.refusal(c.reached))}
            readable = tuple(c for c in group.candidates if c.file.path not in refusals)
            if worthwhile(readable, self.thresholds):
                yield FileGroup(group.label, readable, group.routed)
            if refusals:
                refused = tuple(c for c in group.candidates if c.file.path in refusals)
                yield FileGroup(group.label, refused, group.routed, refused_label(list(refusals.values())))

    def _bundles(self, groups: Iterable[FileGroup]) -> list[tuple[FileGroup, ...]]:
        """Groups in the order that was asked for, bundled; those whose rows are routed stay apart."""
        groups = list(groups)
        refused = [(group,) for group in groups if group.refused is not None]
        ordered = in_order((group for group in groups if group.refused is None), self.thresholds.order)
        chosen = list(truncated(ordered, self.thresholds))
        most = min(self.unit_bytes, self.thresholds.group_size)  # groups of one partition must not come together again
        bundles = list(sharing.bundle([group for group in chosen if not group.routed], most))
        bundles += [(group,) for group in chosen if group.routed]
        return [*bundles_in_order(bundles, self.thresholds.order), *refused]

    # -- from groups to the plan -----------------------------------------------------------------------------

    def _unit(self, number: int, bundle: tuple[FileGroup, ...]) -> Unit:
        candidates = [candidate for group in bundle for candidate in group.candidates]
        files = [candidate.reached for candidate in candidates]
        applied = self.maker.applied(files)
        refused = bundle[0].refused
        read = sum(group.cost for group in bundle) + sum(delete.content_size or delete.size for delete in applied.all)
        header = UnitHeader(
            number=number,
            label=sharing.label(bundle),
            files=len(files),
            delete_files=len(applied.all),
            rows=sum(file.record_count for file, _ in files),
            delete_rows=sum(delete.record_count for delete in applied.all),
            cost=0 if refused else read,
            output=0 if refused else sum(candidate.live_size for candidate in candidates),
            why=explain(candidates, self.rewrite),
            refused=refused,
        )
        return self.maker.unit(header, files, applied)

    def _dangling(self) -> bool:
        return self.rewrite.remove_dangling and not all(self.live.reached_by(delete) for delete in self.deletes)

    def _nothing(self, partitions: dict[PartitionKey | None, list[Candidate]], groups: list[FileGroup]) -> str:
        """Why nothing is selected, with figures."""
        limits = self.thresholds
        candidates = [candidate for files in partitions.values() for candidate in files]
        if not self.data_files:
            return "there are no data files"
        if self.only is not None:
            return "what was left to do is done or gone"
        if not self.selected:
            return f"--where selects none of {self.data_files:,} data files"
        if groups:
            return f"max-files-to-rewrite={limits.most_files} leaves no group that is worth it"
        if not candidates:
            least, most = size_text(limits.min_size), size_text(limits.max_size)
            sizes = f"below {least}" if limits.small_only else f"below {least} or above {most}, or has many deletes"
            return f"none of {counted(self.selected, 'data file')} is {sizes}{self._unordered()}"
        needed = counted(limits.min_input_files, "is needed", "are needed")
        return (
            f"no group qualifies: {explain(candidates, self.rewrite)} in {counted(len(partitions), 'partition')}, "
            f"{needed} in one, or more than {size_text(limits.target_size)}{self._unordered()}"
        )

    def _unordered(self) -> str:
        """How files that need no rewrite are brought into an order that was asked for."""
        if self.rewrite.strategy is Strategy.BINPACK:
            return ""
        return "; to bring files that need no rewrite into this order as well, add rewrite-all (--rewrite-all)"
