"""The index that finds the delete files that apply to a data file (spec, Scan Planning), and dangling delete files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType

from producer.common.errors import Corrupt
from producer.iceberg.column_bounds import Interval, file_intervals, may_match, union_intervals
from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.partitions import PartitionKey, is_unpartitioned, newest_type

#: Above every sequence number.
_MAX_SEQUENCE_NUMBER: Final = 1 << 63


@dataclass(eq=False)
class EqualityDeleteGroup:
    """Equality delete files of one scope and one set of equality ids, by ascending data sequence number."""

    #: None for global deletes, which apply to every spec and partition.
    scope: PartitionKey | None
    equality_ids: tuple[int, ...]
    columns: tuple[tuple[int, PrimitiveType], ...]
    deletes: list[LiveFile] = field(default_factory=list)
    _sequence_numbers: list[int] = field(default_factory=list)
    #: For each file the intervals of the key columns in it and in all files after it.
    _suffix_intervals: list[tuple[Interval, ...]] = field(default_factory=list)

    def add(self, delete: LiveFile) -> None:
        """Add the next file."""
        self.deletes.append(delete)
        self._sequence_numbers.append(delete.sequence_number)

    def start(self, sequence_number: int) -> int:
        """Return the index of the first delete that applies: its number is greater than the data file's."""
        return bisect_right(self._sequence_numbers, sequence_number)

    def may_match(self, file: LiveFile, start: int) -> bool:
        """Whether the bounds allow that a delete from ``start`` on matches a row of the file."""
        if not self.columns:
            return True
        if not self._suffix_intervals:
            intervals = (file_intervals(delete, self.columns) for delete in reversed(self.deletes))
            self._suffix_intervals = list(accumulate(intervals, union_intervals))
            self._suffix_intervals.reverse()
        return may_match(file_intervals(file, self.columns), self._suffix_intervals[start])


@dataclass(frozen=True, slots=True)
class ApplicableDeletes:
    """The deletes of a group from ``start`` on, which apply to a data file."""

    group: EqualityDeleteGroup
    start: int


@dataclass(eq=False)
class PositionDeleteGroup:
    """Position delete files of one partition that may name any of its data files, by ascending data sequence number."""

    deletes: list[LiveFile] = field(default_factory=list)
    _sequence_numbers: list[int] = field(default_factory=list)
    _file_sequence_numbers: list[int] = field(default_factory=list)

    def add(self, delete: LiveFile) -> None:
        """Add the next file."""
        self.deletes.append(delete)
        self._sequence_numbers.append(delete.sequence_number)
        # A file whose manifest lacks its file sequence number may name any data file.
        number = delete.file_sequence_number
        insort(self._file_sequence_numbers, _MAX_SEQUENCE_NUMBER if number is None else number)

    def start(self, sequence_number: int) -> int:
        """Return the index of the first delete that applies: its number is at least the data file's."""
        return bisect_left(self._sequence_numbers, sequence_number)

    def count_likely(self, file: LiveFile) -> int:
        """Return how many deletes may name a data file, without those added before it, which cannot name it.

        By the spec (Scan Planning) the latter still apply to a compaction's output, which has an old sequence number.
        """
        added_since = len(self.deletes) - bisect_left(self._file_sequence_numbers, file.file_sequence_number or 0)
        return min(len(self.deletes) - self.start(file.sequence_number), added_since)


class DeleteFileIndex:
    """Finds the delete files of one snapshot that apply to a data file.

    Raises:
        Corrupt: Two deletion vectors are live for one data file, or one does not say where in its file it lies.
    """

    def __init__(self, deletes: Iterable[LiveFile], metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._unpartitioned = {spec.spec_id: is_unpartitioned(spec) for spec in metadata.partition_specs}
        self._groups: dict[tuple[PartitionKey | None, tuple[int, ...]], EqualityDeleteGroup] = {}
        self._by_scope: dict[PartitionKey | None, list[EqualityDeleteGroup]] = defaultdict(list)
        self._vectors: dict[str, LiveFile] = {}
        self._positions: dict[PartitionKey, PositionDeleteGroup] = defaultdict(PositionDeleteGroup)
        self._by_path: dict[str, list[LiveFile]] = defaultdict(list)
        for delete in sorted(deletes, key=lambda delete: (delete.sequence_number, delete.path)):
            self._add(delete)

    @property
    def groups(self) -> Iterable[EqualityDeleteGroup]:
        """All groups of equality deletes."""
        return self._groups.values()

    @property
    def max_equality_sequence_number(self) -> int:
        """The highest data sequence number of an equality delete; -1 without any."""
        return max((group.deletes[-1].sequence_number for group in self.groups), default=-1)

    def equality_deletes(self, file: LiveFile) -> Iterator[ApplicableDeletes]:
        """Yield the groups that apply to a data file by scope and sequence number; bounds are not looked at."""
        for group in (*self._by_scope[file.partition_key], *self._by_scope[None]):
            start = group.start(file.sequence_number)
            if start < len(group.deletes):
                yield ApplicableDeletes(group, start)

    def deletion_vector(self, file: LiveFile) -> LiveFile | None:
        """Return the data file's deletion vector, or None."""
        return self._vectors.get(file.path)

    def position_deletes(self, file: LiveFile) -> Iterator[LiveFile]:
        """Yield the position delete files that may name the data file; none if it has a vector, which replaces them."""
        if (shared := self.partition_position_deletes(file)) is not None:
            yield from shared.deletes[shared.start(file.sequence_number) :]
        yield from self.file_position_deletes(file)

    def partition_position_deletes(self, file: LiveFile) -> PositionDeleteGroup | None:
        """Return the position deletes of the file's partition that may name several data files, or None."""
        return None if file.path in self._vectors else self._positions.get(file.partition_key)

    def file_position_deletes(self, file: LiveFile) -> list[LiveFile]:
        """Return the position deletes that name this data file only."""
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
                group = self._groups[scope, ids] = EqualityDeleteGroup(scope, ids, key_columns(self._metadata, ids))
                self._by_scope[scope].append(group)
            self._groups[scope, ids].add(delete)
        elif delete.format == FileFormat.PUFFIN:
            target, found = delete.referenced_data_file, f"{delete.path} holds a deletion vector"
            if target is None or target in self._vectors:
                raise Corrupt(f"{found} that is for no data file, or the second one for {target}.")
            if delete.content_offset is None or delete.content_size is None:
                raise Corrupt(f"{found} for {target}, but its manifest does not say where.")
            self._vectors[target] = delete
        elif delete.referenced_data_file is not None:
            self._by_path[delete.referenced_data_file].append(delete)
        else:
            self._positions[delete.partition_key].add(delete)


class DanglingDeletes:
    """Finds the delete files that apply to no data file of a snapshot. Every live data file must be added first."""

    def __init__(self, metadata: TableMetadata, deletes: Iterable[LiveFile]) -> None:
        self._unpartitioned = {spec.spec_id for spec in metadata.partition_specs if is_unpartitioned(spec)}
        self._missing = {path for delete in deletes if (path := delete.referenced_data_file) is not None}
        self._oldest: dict[PartitionKey, int] = {}
        self._oldest_of_all: int | None = None

    def add_data_file(self, file: LiveFile) -> None:
        """Add a live data file."""
        self.add_partition(file.partition_key, file.sequence_number)
        if self._missing:
            self._missing.discard(file.path)

    def add_partition(self, partition: PartitionKey, sequence_number: int) -> None:
        """Add data files of a partition that no delete references, by their lowest data sequence number."""
        if sequence_number < self._oldest.get(partition, sequence_number + 1):
            self._oldest[partition] = sequence_number
            if self._oldest_of_all is None or sequence_number < self._oldest_of_all:
                self._oldest_of_all = sequence_number

    def is_dangling(self, delete: LiveFile) -> bool:
        """Whether a delete file applies to no data file.

        An equality delete applies while its partition (under an unpartitioned spec: the table) has an older data file;
        a vector and a position delete for one data file, while that is live; any other position delete, while its
        partition has a data file that is no newer.
        """
        if delete.content == DataFileContent.EQUALITY_DELETES:
            is_global = delete.spec_id in self._unpartitioned
            oldest = self._oldest_of_all if is_global else self._oldest.get(delete.partition_key)
            return oldest is None or oldest >= delete.sequence_number
        if (path := delete.referenced_data_file) is not None:
            return path in self._missing
        oldest = self._oldest.get(delete.partition_key)
        return oldest is None or oldest > delete.sequence_number


def key_columns(metadata: TableMetadata, ids: Sequence[int]) -> tuple[tuple[int, PrimitiveType], ...]:
    """Return the key columns with the types to compare; empty if the type of one is unknown or not primitive."""
    types = ((field_id, newest_type(metadata, field_id)) for field_id in ids)
    columns = tuple((field_id, type_) for field_id, type_ in types if isinstance(type_, PrimitiveType))
    return columns if len(columns) == len(ids) else ()
