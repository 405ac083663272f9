"""Units: bundling file groups into units, and building a unit of data files with every delete that reaches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias, TypeVar
from urllib.parse import quote_plus

from pyiceberg.manifest import FileFormat
from pyiceberg.table.metadata import TableMetadata

from producer.common.sizes import count_text
from producer.iceberg.delete_file_index import (
    ApplicableDeletes,
    DeleteFileIndex,
    EqualityDeleteGroup,
    PositionDeleteGroup,
)
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.partitions import encode_scope, partition_path
from producer.model.plan import (
    DataFile,
    EqualityDeleteFile,
    Plan,
    PositionDeleteFile,
    Scope,
    Unit,
    UnitHeader,
    VectorRef,
)

#: A sort key of partitions: label, spec id, and values in hexadecimal with nulls first.
PartitionOrder: TypeAlias = tuple[str, int, tuple[tuple[bool, str], ...]]
#: A data file with the equality deletes that may apply to rows of it.
FileWithDeletes: TypeAlias = tuple[LiveFile, tuple[ApplicableDeletes, ...]]


@dataclass(frozen=True)
class PlanWithUnits:
    """A plan and its units."""

    plan: Plan
    units: tuple[Unit, ...]


class FileGroup(Protocol):
    """Files of one partition that one unit works on together. Each operation has its own class."""

    #: The partition, for people.
    @property
    def label(self) -> str: ...
    #: Bytes that will be read.
    @property
    def cost(self) -> int: ...
    #: Why the group is refused, or None.
    @property
    def refused(self) -> str | None: ...


G = TypeVar("G", bound=FileGroup)


def bundle(groups: Iterable[G], limit: int) -> Iterator[tuple[G, ...]]:
    """Bundle small groups, in order, up to ``limit`` bytes; a refused group stays apart, so that only it fails."""
    bundled: list[G] = []
    for group in groups:
        if group.refused is not None:
            yield (group,)
            continue
        if bundled and sum(g.cost for g in bundled) + group.cost > limit:
            yield tuple(bundled)
            bundled = []
        bundled.append(group)
    if bundled:
        yield tuple(bundled)


def bundle_label(groups: Sequence[FileGroup]) -> str:
    """Return the label of a bundle: its first group, and how many more there are."""
    first = groups[0].label
    return first if len(groups) == 1 else f"{first} +{len(groups) - 1} more"


@dataclass(frozen=True)
class AppliedDeletes:
    """The deletes that apply to some data files, each once."""

    equality: tuple[tuple[LiveFile, EqualityDeleteGroup], ...]
    positions: tuple[LiveFile, ...]
    vectors: tuple[LiveFile, ...]

    @property
    def all(self) -> tuple[LiveFile, ...]:
        """All of them, of every kind."""
        return (*(delete for delete, _ in self.equality), *self.positions, *self.vectors)


def equality_deletes_of(files: Iterable[FileWithDeletes]) -> Iterator[tuple[LiveFile, EqualityDeleteGroup]]:
    """Yield the equality deletes that apply to some data files, each once, in time linear in files and deletes."""
    starts: dict[EqualityDeleteGroup, int] = {}
    for _, deletes in files:
        for applicable in deletes:
            starts[applicable.group] = min(applicable.start, starts.get(applicable.group, applicable.start))
    for group, start in starts.items():
        for delete in group.deletes[start:]:
            yield delete, group


class UnitBuilder:
    """Builds units from the files of one snapshot."""

    def __init__(self, metadata: TableMetadata, index: DeleteFileIndex, deletes: Iterable[LiveFile]) -> None:
        self._metadata = metadata
        self._index = index
        self._deletes = deletes

    def applied_deletes(self, files: Sequence[FileWithDeletes]) -> AppliedDeletes:
        """Return the deletes that apply to data files, in time linear in files and deletes."""
        shared: dict[PositionDeleteGroup, int] = {}
        own: list[LiveFile] = []
        vectors: list[LiveFile] = []
        for file, _ in files:
            if (vector := self._index.deletion_vector(file)) is not None:
                vectors.append(vector)
            if (positions := self._index.partition_position_deletes(file)) is not None:
                start = positions.start(file.sequence_number)
                shared[positions] = min(start, shared.get(positions, start))
            # A position delete file of another partition does not apply, even if it names the file.
            own += [d for d in self._index.file_position_deletes(file) if d.partition_key == file.partition_key]
        return AppliedDeletes(
            equality=tuple(equality_deletes_of(files)),
            positions=(*(delete for p, start in shared.items() for delete in p.deletes[start:]), *own),
            vectors=tuple(vectors),
        )

    def unit(self, header: UnitHeader, files: Sequence[FileWithDeletes], applied: AppliedDeletes) -> Unit:
        """Return a unit of data files, with its scopes in the order of their first files."""
        scope_of = {key: number for number, key in enumerate(dict.fromkeys(file.partition_key for file, _ in files))}
        samples = {file.partition_key: file for file, _ in reversed(files)}
        return Unit(
            header=header,
            scopes=tuple(self.scope(samples[key]) for key in scope_of),
            data=tuple(self._data_file(file, scope_of[file.partition_key]) for file, _ in files),
            deletes=tuple(
                EqualityDeleteFile(
                    path=delete.path,
                    sequence_number=delete.sequence_number,
                    records=delete.record_count,
                    size=delete.size,
                    equality_ids=group.equality_ids,
                    scope=None if group.scope is None else scope_of[group.scope],
                )
                for delete, group in applied.equality
            ),
            positions=tuple(
                PositionDeleteFile(
                    path=delete.path,
                    sequence_number=delete.sequence_number,
                    scope=scope_of[delete.partition_key],
                    referenced=delete.referenced_data_file,
                )
                for delete in applied.positions
            ),
        )

    def scope(self, file: LiveFile) -> Scope:
        """Return the partition of a file."""
        return encode_scope(self._metadata, file.spec_id, file.partition)

    def label(self, file: LiveFile) -> str:
        """Return a file's partition for people; the text ``null`` is quoted to tell it from a null value."""
        spec = self._metadata.specs()[file.spec_id]
        parts = partition_path(self._metadata, spec, file.partition).split("/")
        for position, field in enumerate(spec.fields):
            if file.partition[position] == "null":
                parts[position] = f"{quote_plus(field.name)}='null'"
        return "/".join(parts) or "unpartitioned"

    def order(self, file: LiveFile) -> PartitionOrder:
        """Return the sort key of a file's partition: its label, then its spec and encoded values.

        The values themselves cannot be compared: null has no type, and NaN has no order.
        """
        scope = self.scope(file)
        return scope.label, scope.spec_id, tuple((value is not None, value or "") for value in scope.values)

    def refusals(self, files: Iterable[FileWithDeletes]) -> dict[str, str]:
        """Return why data files, or deletes that apply to them, cannot be read, by the paths of the data files."""
        reasons = ((file.path, self._refusal(file, deletes)) for file, deletes in files)
        return {path: reason for path, reason in reasons if reason is not None}

    def _refusal(self, file: LiveFile, deletes: tuple[ApplicableDeletes, ...]) -> str | None:
        if (reason := _unreadable(file)) is not None:
            return reason
        if self._unreadable_deletes:
            for applied in self.applied_deletes([(file, deletes)]).all:
                if (reason := self._unreadable_deletes.get(applied.path)) is not None:
                    return reason
        for group, start in ((applicable.group, applicable.start) for applicable in deletes):
            if not group.columns:
                path, ids = group.deletes[start].path, list(group.equality_ids)
                return f"{path} has equality ids {ids}: one of them is no column of a primitive type."
        return None

    @cached_property
    def _unreadable_deletes(self) -> dict[str, str]:
        reasons = ((d.path, _unreadable(d)) for d in self._deletes if not d.is_vector)
        return {path: reason for path, reason in reasons if reason is not None}

    def _data_file(self, file: LiveFile, scope: int) -> DataFile:
        vector = self._index.deletion_vector(file)
        return DataFile(
            path=file.path,
            sequence_number=file.sequence_number,
            records=file.record_count,
            size=file.size,
            scope=scope,
            vector=vector_ref(vector) if vector else None,
            first_row_id=file.first_row_id,
        )


def vector_ref(vector: LiveFile) -> VectorRef:
    """Return the location of a live deletion vector."""
    assert vector.content_offset is not None
    assert vector.content_size is not None
    return VectorRef(
        path=vector.path, offset=vector.content_offset, size=vector.content_size, cardinality=vector.record_count
    )


def refusal_summary(refusals: Mapping[str, str]) -> str:
    """Return the first reason, and how many more files are refused."""
    first = next(iter(refusals.values()))
    return first if len(refusals) == 1 else f"{first} (and {count_text(len(refusals) - 1, 'more file')})"


def _unreadable(file: LiveFile) -> str | None:
    if file.format != FileFormat.PARQUET:
        return f"{file.path} is {file.format.value}: only Parquet is read so far."
    if file.data_file.key_metadata is not None:
        return f"{file.path} is encrypted: encrypted files are not read so far."
    return None
