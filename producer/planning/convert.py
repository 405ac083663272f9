"""Planning of a conversion: which data files equality deletes reach, cut into units, and what may retire with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from pyiceberg.manifest import DataFileContent, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from producer.iceberg.delete_index import DeleteIndex, Group, Reach
from producer.iceberg.manifest_reader import LiveFile, read_manifest_list, read_manifests
from producer.iceberg.partitions import PartitionKey
from producer.model.plan import Plan, Retirement, Unit, UnitHeader
from producer.planning import unit_sizes as sharing
from producer.planning.partition_filter import Selection
from producer.planning.unit_sizes import Share
from producer.planning.units import Planned, Reached, UnitMaker, reaching, refused_label


class ConversionPlanning:
    """The planning of one conversion; its steps share what was read of the snapshot.

    Args:
        table: Freshly loaded.
        base: The plan without units.
        head: The snapshot that is planned from.
        unit_bytes: What one unit reads at most, as long as a single file allows.
        only: Paths of the equality deletes that are left to do in a later round; None for all.
    """

    def __init__(self, table: Table, base: Plan, head: Snapshot, unit_bytes: int, only: frozenset[str] | None) -> None:
        self.metadata: TableMetadata = table.metadata
        self.base = base
        self.unit_bytes = unit_bytes
        self.selection = Selection(base.request.where, table.metadata)
        self.io = table.io
        self.manifests = read_manifest_list(table.io, head)
        deletes = read_manifests(table.io, [m for m in self.manifests if m.content == ManifestContent.DELETES])
        wanted = [
            delete
            for delete in deletes
            if delete.content != DataFileContent.EQUALITY_DELETES or only is None or delete.path in only
        ]
        self.index = DeleteIndex(wanted, self.metadata)
        self.maker = UnitMaker(self.metadata, self.index, wanted)
        #: Groups that reach a data file which the filter leaves out, with the sequence number of the oldest such file.
        self.left_out: dict[Group, int] = {}

    def planned(self) -> Planned:
        """The plan and its units; a plan that selects nothing says why."""
        if not self.index.groups:
            return Planned(self.base.model_copy(update={"nothing": "there are no equality deletes"}), ())
        bundles = list(sharing.bundle(self._shares(), self.unit_bytes))
        units = tuple(self._unit(number, bundle) for number, bundle in enumerate(bundles))
        retirements = self._retirements(bundles)
        plan = self.base.model_copy(update={"units": tuple(u.header for u in units), "retirements": retirements})
        if plan.empty:
            plan = plan.model_copy(
                update={"nothing": "no partition with equality deletes is selected", "retirements": ()}
            )
        return Planned(plan, units)

    # -- from data files to shares ---------------------------------------------------------------------------

    def _reached(self) -> dict[PartitionKey, list[Reached]]:
        """The data files that some equality delete may remove a row of, by partition."""
        newest = self.index.newest
        # A manifest whose oldest file is as new as the newest delete has nothing that a delete reaches.
        older = [
            m for m in self.manifests if m.content == ManifestContent.DATA and (m.min_sequence_number or 0) < newest
        ]
        found: dict[PartitionKey, list[Reached]] = defaultdict(list)
        for file in read_manifests(self.io, older):
            reaches = tuple(self.index.equality(file))
            if not reaches:
                continue
            if not self.selection.selects(file.spec_id, file.partition):
                for reach in reaches:
                    oldest = self.left_out.get(reach.group, file.sequence_number)
                    self.left_out[reach.group] = min(oldest, file.sequence_number)
                continue
            reaches = tuple(reach for reach in reaches if reach.group.may_match(file, reach.start))
            if reaches:
                found[file.partition_key].append((file, reaches))
        return found

    def _shares(self) -> Iterable[Share]:
        by_scope = self._reached()
        for key in sorted(by_scope, key=lambda key: self.maker.order(by_scope[key][0][0])):
            files = sorted(by_scope[key], key=lambda item: item[0].path)
            label = self.maker.label(files[0][0])
            refusals = {item[0].path: reason for item in files if (reason := self.maker.refusal(item)) is not None}
            readable = tuple(item for item in files if item[0].path not in refusals)
            if readable:
                costs = {file.path: self._cost(file, reaches) for file, reaches in readable}
                total = sum(delete.size for delete, _ in reaching(readable))
                share = Share(key, label, readable, sum(costs.values()) + total)
                yield from sharing.split(share, costs, total, self.unit_bytes)
            if refusals:
                refused = tuple(item for item in files if item[0].path in refusals)
                yield Share(key, label, refused, 0, refused_label(list(refusals.values())))

    def _cost(self, file: LiveFile, reaches: Sequence[Reach]) -> int:
        """Bytes of the key columns that will be read, or of the whole file where the manifest does not tell."""
        ids = {field_id for reach in reaches for field_id in reach.group.equality_ids}
        sizes = file.data_file.column_sizes or {}
        return sum(sizes[i] for i in ids) if ids <= sizes.keys() else file.size

    # -- from shares to units --------------------------------------------------------------------------------

    def _unit(self, number: int, bundle: tuple[Share, ...]) -> Unit:
        files = [item for share in bundle for item in share.files]
        applied = self.maker.applied(files)
        header = UnitHeader(
            number=number,
            label=sharing.label(bundle),
            files=len(files),
            delete_files=len(applied.equality),
            rows=sum(file.record_count for file, _ in files),
            delete_rows=sum(delete.record_count for delete, _ in applied.equality),
            cost=sum(share.cost for share in bundle),
            refused=next((share.refused for share in bundle if share.refused), None),
        )
        return self.maker.unit(header, files, applied)

    # -- what may leave the table ----------------------------------------------------------------------------

    def _retirements(self, bundles: list[tuple[Share, ...]]) -> tuple[Retirement, ...]:
        units_of: dict[str, list[int]] = defaultdict(list)
        for number, bundle in enumerate(bundles):
            for delete, _ in reaching(item for share in bundle for item in share.files):
                units_of[delete.path].append(number)
        return tuple(
            Retirement(
                path=delete.path,
                sequence_number=delete.sequence_number,
                scope=None if group.scope is None else self.maker.scope(delete),
                units=tuple(units_of[delete.path]),
                complete=self._complete(group, delete),
            )
            for group in self.index.groups
            for delete in group.deletes
            if self._belongs(group, delete, units_of)
        )

    def _belongs(self, group: Group, delete: LiveFile, units_of: dict[str, list[int]]) -> bool:
        """Whether a delete is the request's business: one of its units applies it, or its partition is selected."""
        if delete.path in units_of or self.selection.everything:
            return True
        return group.scope is not None and self.selection.selects(delete.spec_id, delete.partition)

    def _complete(self, group: Group, delete: LiveFile) -> bool:
        if group.scope is None and not self.selection.everything:
            oldest = self.left_out.get(group)
            return oldest is None or oldest >= delete.sequence_number
        return True
