"""The inputs of a rewrite: how they are split and grouped for tasks, and their live rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

import pyarrow as pa

from producer.model.plan import Scope
from workers.deletes.resolve import deleted_positions
from workers.formats.row_reader import RowReader
from workers.model.delete_set import ContentFile, FileSplit
from workers.model.units import Sizes
from workers.runtime.bulk_io import opened_soon
from workers.runtime.parallel import balance
from workers.runtime.scratch import record_rows, record_split

#: What splits of inputs are counted under when they were read to their end.
READ: Final = "files-read"
_SPLITS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class SplitGroup:
    """Splits that are written into one partition, one after another."""

    partition: Scope
    splits: tuple[FileSplit, ...]
    #: Live rows, about.
    rows: int

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(split.size for split in self.splits)

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, about."""
        return self.size / max(1, sum(split.rows for split in self.splits))


def group_by_partition(
    inputs: Iterable[ContentFile], scopes: Sequence[Scope | None]
) -> list[tuple[Scope, list[ContentFile]]]:
    """Return inputs by the partition that all of their rows go to, in the order in which they came to the table."""
    found: dict[Scope, list[ContentFile]] = defaultdict(list)
    for file in _in_order(inputs):
        partition = scopes[file.scope]
        assert partition is not None
        found[partition].append(file)
    return list(found.items())


def group_splits(
    partitions: Iterable[tuple[Scope, Sequence[ContentFile]]],
    sizes: Sizes,
    most: int,
    deleted_rows: Callable[[ContentFile], int],
) -> list[SplitGroup]:
    """Cut each partition's inputs into groups that are worth a file of the target size, ``most`` at most.

    What is written into one partition stays together and in the order of its inputs.
    """
    groups = []
    for partition, inputs in partitions:
        live = {file.path: max(0, file.record_count - deleted_rows(file)) for file in inputs}
        output = sum(file.size * live[file.path] // max(1, file.record_count) for file in inputs)
        wanted = min(most, sizes.files(output))
        share = max(1, sum(file.size for file in inputs) // wanted)
        for splits in _cut(inputs, share, wanted):
            rows = sum(live[split.file.path] // split.count for split in splits)
            groups.append(SplitGroup(partition, splits, rows))
    return groups


def split_inputs(files: Sequence[ContentFile], cores: int) -> list[FileSplit]:
    """Return files in the order in which they came to the table, large ones split so that all cores have work."""
    share = max(1, sum(file.size for file in files) // (cores * _SPLITS_PER_CORE))
    return [
        split for file in _in_order(files) for split in _split(file, min(cores * _SPLITS_PER_CORE, file.size // share))
    ]


def balance_groups(groups: Sequence[SplitGroup], tasks: int) -> list[list[SplitGroup]]:
    """Return the groups of each task, balanced by size; no task is empty."""
    return [[groups[index] for index in task] for task in balance([group.size for group in groups], tasks)]


def _in_order(files: Iterable[ContentFile]) -> list[ContentFile]:
    return sorted(files, key=lambda file: (file.sequence_number, file.path))


def _split(file: ContentFile, count: int) -> list[FileSplit]:
    return [FileSplit(file, number, max(1, count)) for number in range(max(1, count))]


def _cut(files: Sequence[ContentFile], share: int, wanted: int) -> list[tuple[FileSplit, ...]]:
    """Cut files in order into about equal shares; a file that is larger than a share is read in several splits."""
    cut: list[list[FileSplit]] = [[]]
    size = 0
    for split in (split for file in files for split in _split(file, min(wanted, -(-file.size // share)))):
        if cut[-1] and len(cut) < wanted and size + split.size // 2 > share:
            cut.append([])
            size = 0
        cut[-1].append(split)
        size += split.size
    return [tuple(splits) for splits in cut]


@dataclass(frozen=True)
class LiveRows:
    """Reads inputs without the rows that deletes remove, which lie resolved in scratch, and counts them."""

    reader: RowReader
    scratch: Path

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, with field ids."""
        return self.reader.schema

    def deleted_rows(self, file: ContentFile) -> int:
        """Return how many rows of a file are deleted."""
        positions = deleted_positions(self.scratch, file.index)
        return 0 if positions is None else len(positions)

    def read_uncounted(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        """Yield rows of a split that are read once more, or not to their end: they are not counted."""
        return self.reader.read(split, deleted_positions(self.scratch, split.file.index))

    def read(self, split: FileSplit) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split, which count as read."""
        sizes: list[int] = []
        live = 0
        for batch in self.reader.read(split, deleted_positions(self.scratch, split.file.index), sizes.append):
            live += batch.num_rows
            yield batch
        record_rows(self.scratch, sum(sizes), live)
        record_split(self.scratch, split.file.index, READ)

    def read_all(self, splits: Sequence[FileSplit]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of splits, one after another; those of files that are no inputs are not counted."""
        for split in opened_soon(self.reader.io, splits, attrgetter("path")):
            yield from self.read(split) if split.file.index >= 0 else self.read_uncounted(split)
