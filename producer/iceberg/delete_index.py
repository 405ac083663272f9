"""The index that says which deletes reach which data file (spec, Scan Planning)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, PrimitiveType

from producer.common.errors import Corrupt
from producer.iceberg.column_bounds import Interval, intervals, may_match
from producer.iceberg.manifest_reader import LiveFile
from producer.iceberg.partitions import PartitionKey, is_unpartitioned

#: Above every sequence number.
_LATEST: Final = 1 << 63


@dataclass(eq=False)
class Group:
    """Equality delete files of one scope and one set of equality ids, by ascending data sequence number.

    ``scope`` is None for global ones, which reach every spec and partition.
    """

    scope: PartitionKey | None
    equality_ids: tuple[int, ...]
    columns: tuple[tuple[int, PrimitiveType], ...]
    deletes: list[LiveFile] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    #: What is known of the key columns in each file and all after it.
    _suffixes: list[tuple[Interval, ...]] = field(default_factory=list)

    def seal(self) -> None:
        """Bring the files into order; nothing is added afterwards."""
        self.deletes.sort(key=lambda delete: (delete.sequence_number, delete.path))
        self._numbers = [delete.sequence_number for delete in self.deletes]

    def start(self, sequence_number: int) -> int:
        """Index of the first delete that is strictly newer: the data file's number must lie below the delete's."""
        return bisect_right(self._numbers, sequence_number)

    def may_match(self, file: LiveFile, start: int) -> bool:
        """Whether the bounds leave it possible that deletes from ``start`` on remove a row of the file."""
        if not self.columns:
            return True
        if not self._suffixes:
            self._suffixes = list(accumulate((intervals([d], self.columns) for d in reversed(self.deletes)), _union))
            self._suffixes.reverse()
        return may_match(intervals([file], self.columns), self._suffixes[start])


def _or(number: int | None, unknown: int) -> int:
    return unknown if number is None else number


def _union(one: tuple[Interval, ...], other: tuple[Interval, ...]) -> tuple[Interval, ...]:
    return tuple(a.union(b) for a, b in zip(one, other, strict=True))


@dataclass(frozen=True, slots=True)
class Reach:
    """A group that reaches a data file, from one of its deletes on."""

    group: Group
    start: int


@dataclass(eq=False)
class Positions:
    """Position delete files of one partition that may name any of its data files, by ascending data sequence number."""

    deletes: list[LiveFile] = field(default_factory=list)
    _numbers: list[int] = field(default_factory=list)
    _added: list[int] = field(default_factory=list)

    def seal(self) -> None:
        """Bring the files into order; nothing is added afterwards."""
        self.deletes.sort(key=lambda delete: delete.sequence_number)
        self._numbers = [delete.sequence_number for delete in self.deletes]
        # One that does not tell when it was added may name any file.
        self._added = sorted(_or(delete.file_sequence_number, _LATEST) for delete in self.deletes)

    def start(self, sequence_number: int) -> int:
        """Index of the first delete that is as new or newer: the data file's number must not lie above it."""
        return bisect_left(self._numbers, sequence_number)

    def likely(self, file: LiveFile) -> int:
        """How many may name a data file, those left out that were there before it: nobody names what is to come.

        They still apply by the letter (spec, Scan Planning) to a compaction's output, which looks old.
        """
        added = len(self._added) - bisect_left(self._added, _or(file.file_sequence_number, 0))
        return min(len(self.deletes) - self.start(file.sequence_number), added)


class DeleteIndex:
    """Finds the deletes of one snapshot that apply to a data file.

    Raises:
        Corrupt: two deletion vectors are live for one data file, or one cannot be found in its file.
    """

    def __init__(self, deletes: Iterable[LiveFile], metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._unpartitioned = {spec.spec_id: is_unpartitioned(spec) for spec in metadata.partition_specs}
        self._groups: dict[tuple[PartitionKey | None, tuple[int, ...]], Group] = {}
        self._by_scope: dict[PartitionKey | None, list[Group]] = defaultdict(list)
        self._vectors: dict[str, LiveFile] = {}
        self._positions: dict[PartitionKey, Positions] = defaultdict(Positions)
        self._by_path: dict[str, list[LiveFile]] = defaultdict(list)
        for delete in deletes:
            self._add(delete)
        for group in self._groups.values():
            group.seal()
        for shared in self._positions.values():
            shared.seal()
        for own in self._by_path.values():
            own.sort(key=lambda delete: delete.sequence_number)

    @property
    def groups(self) -> Iterable[Group]:
        """All groups of equality deletes."""
        return self._groups.values()

    @property
    def newest(self) -> int:
        """The highest data sequence number of an equality delete; -1 without any."""
        return max((group.deletes[-1].sequence_number for group in self.groups), default=-1)

    def equality(self, file: LiveFile) -> Iterator[Reach]:
        """The groups that apply to a data file by scope and sequence number, bounds left aside."""
        for group in (*self._by_scope[file.partition_key], *self._by_scope[None]):
            start = group.start(file.sequence_number)
            if start < len(group.deletes):
                yield Reach(group, start)

    def vector(self, file: LiveFile) -> LiveFile | None:
        """The data file's deletion vector."""
        return self._vectors.get(file.path)

    def positions(self, file: LiveFile) -> Iterator[LiveFile]:
        """Position delete files that may name the data file; none where a vector takes their place."""
        if (shared := self.shared_positions(file)) is not None:
            yield from shared.deletes[shared.start(file.sequence_number) :]
        yield from self.own_positions(file)

    def shared_positions(self, file: LiveFile) -> Positions | None:
        """The position deletes of the file's partition that may name several data files; None without any."""
        return None if file.path in self._vectors else self._positions.get(file.partition_key)

    def own_positions(self, file: LiveFile) -> list[LiveFile]:
        """The position deletes that are for this data file alone."""
        if file.path in self._vectors:
            return []
        deletes = self._by_path.get(file.path, [])
        return [delete for delete in deletes if delete.sequence_number >= file.sequence_number]

    def _add(self, delete: LiveFile) -> None:
        if delete.content == DataFileContent.EQUALITY_DELETES:
            scope = None if self._unpartitioned[delete.spec_id] else delete.partition_key
            ids = tuple(sorted(delete.equality_ids))
            if not ids:
                raise Corrupt(f"{delete.path} is an equality delete file without equality ids.")
            if (scope, ids) not in self._groups:
                group = self._groups[scope, ids] = Group(scope, ids, key_columns(self._metadata, ids))
                self._by_scope[scope].append(group)
            self._groups[scope, ids].deletes.append(delete)
        elif delete.format == FileFormat.PUFFIN:
            target = delete.referenced_data_file
            if target is None or target in self._vectors:
                raise Corrupt(
                    f"{delete.path} holds a deletion vector that is for no data file, or the second one for {target}."
                )
            if delete.content_offset is None or delete.content_size is None:
                raise Corrupt(f"{delete.path} holds a deletion vector for {target}, and nothing tells where in it.")
            self._vectors[target] = delete
        elif delete.referenced_data_file is not None:
            self._by_path[delete.referenced_data_file].append(delete)
        else:
            self._positions[delete.partition_key].deletes.append(delete)


def key_type(metadata: TableMetadata, field_id: int) -> IcebergType | None:
    """The type of a key column: the current one, or the last one it had before it was dropped."""
    for schema in (metadata.schema(), *sorted(metadata.schemas, key=lambda s: -s.schema_id)):
        try:
            return schema.find_type(field_id)
        except ValueError:
            continue
    return None


def key_columns(metadata: TableMetadata, ids: Sequence[int]) -> tuple[tuple[int, PrimitiveType], ...]:
    """Key columns with the types they are compared in; empty when one is not primitive or not known."""
    types = [key_type(metadata, field_id) for field_id in ids]
    if not all(isinstance(type_, PrimitiveType) for type_ in types):
        return ()
    return tuple(
        (field_id, type_) for field_id, type_ in zip(ids, types, strict=True) if isinstance(type_, PrimitiveType)
    )
