"""Planning of a conversion: which data files equality deletes reach, cut into units, and what may retire with them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from producer import shares as sharing
from producer.manifests import LiveFile, read_manifest_list, read_manifests
from producer.partitions import PartitionKey, encode_partition, partition_path, partition_type
from producer.plans import (
    DataFile,
    EqualityDeleteFile,
    Plan,
    PositionDeleteFile,
    Retirement,
    Scope,
    Unit,
    UnitHeader,
    VectorRef,
)
from producer.reach import DeleteIndex, Group, Reach
from producer.selection import Selection
from producer.shares import Share


@dataclass(frozen=True)
class Planned:
    """A plan and the units it names."""

    plan: Plan
    units: tuple[Unit, ...]


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

    def _reached(self) -> dict[PartitionKey, list[tuple[LiveFile, tuple[Reach, ...]]]]:
        """The data files that some equality delete may remove a row of, by partition."""
        newest = self.index.newest
        # A manifest whose oldest file is as new as the newest delete has nothing that a delete reaches.
        older = [
            m for m in self.manifests if m.content == ManifestContent.DATA and (m.min_sequence_number or 0) < newest
        ]
        found: dict[PartitionKey, list[tuple[LiveFile, tuple[Reach, ...]]]] = defaultdict(list)
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
        labelled = sorted((self._label(files[0][0]), key) for key, files in by_scope.items())
        for label, key in labelled:
            files = sorted(by_scope[key], key=lambda item: item[0].path)
            refusals = {item[0].path: reason for item in files if (reason := self._refusal(item)) is not None}
            readable = tuple(item for item in files if item[0].path not in refusals)
            if readable:
                costs = {file.path: self._cost(file, reaches) for file, reaches in readable}
                deletes = {
                    d.path: d.size for _, reaches in readable for r in reaches for d in r.group.deletes[r.start :]
                }
                total = sum(deletes.values())
                share = Share(key, label, readable, sum(costs.values()) + total)
                yield from sharing.split(share, costs, total, self.unit_bytes)
            if refusals:
                refused = tuple(item for item in files if item[0].path in refusals)
                reason = next(iter(refusals.values()))
                more = f" (and {len(refusals) - 1} more files)" if len(refusals) > 1 else ""
                yield Share(key, label, refused, 0, reason + more)

    def _refusal(self, item: tuple[LiveFile, tuple[Reach, ...]]) -> str | None:
        """Why a data file with its deletes cannot be worked on; a sentence that names the file."""
        file, reaches = item
        for read in (file, *(d for r in reaches for d in r.group.deletes[r.start :]), *self.index.positions(file)):
            if read.format != FileFormat.PARQUET:
                return f"{read.path} is {read.format.value}: only Parquet is read so far."
            if read.data_file.key_metadata is not None:
                return f"{read.path} is encrypted: encrypted files are not read so far."
        for reach in reaches:
            if not reach.group.columns:
                return (
                    f"{reach.group.deletes[reach.start].path} has equality ids {list(reach.group.equality_ids)}: "
                    "one of them is no column of a primitive type."
                )
        return None

    def _cost(self, file: LiveFile, reaches: Sequence[Reach]) -> int:
        """Bytes of the key columns that will be read, or of the whole file where the manifest does not tell."""
        ids = {field_id for reach in reaches for field_id in reach.group.equality_ids}
        sizes = file.data_file.column_sizes or {}
        return sum(sizes[i] for i in ids) if ids <= sizes.keys() else file.size

    def _label(self, file: LiveFile) -> str:
        return partition_path(self.metadata, self.metadata.specs()[file.spec_id], file.partition) or "unpartitioned"

    # -- from shares to units --------------------------------------------------------------------------------

    def _unit(self, number: int, bundle: tuple[Share, ...]) -> Unit:
        keys = list(dict.fromkeys(share.scope for share in bundle))
        scope_of = {key: index for index, key in enumerate(keys)}
        scopes = {share.scope: self._scope(share.files[0][0]) for share in bundle}
        files = [item for share in bundle for item in share.files]
        deletes = {
            delete.path: (delete, reach.group)
            for _, reaches in files
            for reach in reaches
            for delete in reach.group.deletes[reach.start :]
        }
        positions = {p.path: p for file, _ in files for p in self.index.positions(file)}
        data = tuple(self._data_file(file, scope_of[file.partition_key]) for file, _ in files)
        header = UnitHeader(
            number=number,
            label=sharing.label(bundle),
            files=len(data),
            delete_files=len(deletes),
            rows=sum(file.records for file in data),
            delete_rows=sum(delete.record_count for delete, _ in deletes.values()),
            cost=sum(share.cost for share in bundle),
            refused=next((share.refused for share in bundle if share.refused), None),
        )
        return Unit(
            header=header,
            scopes=tuple(scopes[key] for key in keys),
            data=data,
            deletes=tuple(
                EqualityDeleteFile(
                    path=delete.path,
                    sequence_number=delete.sequence_number,
                    records=delete.record_count,
                    size=delete.size,
                    equality_ids=group.equality_ids,
                    scope=None if group.scope is None else scope_of[group.scope],
                )
                for delete, group in deletes.values()
            ),
            positions=tuple(
                PositionDeleteFile(
                    path=file.path,
                    sequence_number=file.sequence_number,
                    scope=scope_of[file.partition_key],
                    referenced=file.referenced_data_file,
                )
                for file in positions.values()
                if file.partition_key in scope_of
            ),
        )

    def _data_file(self, file: LiveFile, scope: int) -> DataFile:
        vector = self.index.vector(file)
        return DataFile(
            path=file.path,
            sequence_number=file.sequence_number,
            records=file.record_count,
            size=file.size,
            scope=scope,
            vector=vector_ref(vector) if vector else None,
        )

    def _scope(self, file: LiveFile) -> Scope:
        spec = self.metadata.specs()[file.spec_id]
        return Scope(
            spec_id=file.spec_id,
            values=tuple(encode_partition(partition_type(self.metadata, spec), file.partition)),
            label=partition_path(self.metadata, spec, file.partition),
        )

    # -- what may leave the table ----------------------------------------------------------------------------

    def _retirements(self, bundles: list[tuple[Share, ...]]) -> tuple[Retirement, ...]:
        units_of: dict[str, list[int]] = defaultdict(list)
        for number, bundle in enumerate(bundles):
            starts: dict[Group, int] = {}
            for share in bundle:
                for _, reaches in share.files:
                    for reach in reaches:
                        starts[reach.group] = min(reach.start, starts.get(reach.group, reach.start))
            for group, start in starts.items():
                for delete in group.deletes[start:]:
                    units_of[delete.path].append(number)
        return tuple(
            Retirement(
                path=delete.path,
                sequence_number=delete.sequence_number,
                scope=None if group.scope is None else self._scope(delete),
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


def vector_ref(vector: LiveFile) -> VectorRef:
    """Where a live deletion vector lies."""
    assert vector.content_offset is not None
    assert vector.content_size is not None
    return VectorRef(
        path=vector.path, offset=vector.content_offset, size=vector.content_size, cardinality=vector.record_count
    )
