"""How the inputs of a rewrite are dealt to tasks: what is written into one partition stays together and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from producer.model.plan import Scope
from workers.model.rewrite_unit import Input, Sizes
from workers.runtime.parallel import balance

_PARTS_PER_CORE: Final = 4


@dataclass(frozen=True, slots=True)
class Part:
    """A data file, or one of several runs of its row groups."""

    file: Input
    share: tuple[int, int] = (0, 1)

    @property
    def size(self) -> int:
        """Bytes."""
        return self.file.size // self.share[1]

    @property
    def rows(self) -> int:
        """About."""
        return self.file.record_count // self.share[1]


@dataclass(frozen=True, slots=True)
class Job:
    """Parts that are written into one partition, one after another."""

    partition: Scope
    parts: tuple[Part, ...]
    #: Rows that will come, about.
    rows: int

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(part.size for part in self.parts)

    @property
    def width(self) -> float:
        """Bytes that a row takes, about."""
        return self.size / max(1, sum(part.rows for part in self.parts))


def jobs(
    partitions: Iterable[tuple[Scope, Sequence[Input]]], sizes: Sizes, most: int, lost: Callable[[Input], int]
) -> list[Job]:
    """Cut each partition's inputs into jobs that are worth a file of the target size, ``most`` at most.

    Args:
        partitions: Each with its inputs.
        sizes: Of the files to be written.
        most: Jobs of one partition.
        lost: How many rows of an input are deleted.
    """
    found = []
    for partition, inputs in partitions:
        ordered = sorted(inputs, key=lambda file: (file.sequence_number, file.path))
        live = {file.index: max(0, file.record_count - lost(file)) for file in inputs}
        output = sum(file.size * live[file.index] // max(1, file.record_count) for file in inputs)
        wanted = min(most, sizes.files(output))
        share = max(1, sum(file.size for file in inputs) // wanted)
        for parts in _cut(ordered, share, wanted):
            rows = sum(live[part.file.index] // part.share[1] for part in parts)
            found.append(Job(partition, parts, rows))
    return found


def parts(files: Sequence[Input], cores: int) -> list[Part]:
    """Files in the order in which they came to the table, large ones cut so that all cores have some to read."""
    share = max(1, sum(file.size for file in files) // (cores * _PARTS_PER_CORE))
    ordered = sorted(files, key=lambda file: (file.sequence_number, file.path))
    return [
        Part(file, (part, number))
        for file in ordered
        for number in [max(1, min(cores * _PARTS_PER_CORE, file.size // share))]
        for part in range(number)
    ]


def by_partition(inputs: Iterable[Input], scopes: Sequence[Scope | None]) -> list[tuple[Scope, list[Input]]]:
    """Inputs by the partition that all of their rows go to."""
    found: dict[Scope, list[Input]] = defaultdict(list)
    for file in inputs:
        partition = scopes[file.scope]
        assert partition is not None
        found[partition].append(file)
    return list(found.items())


def balanced(work: Sequence[Job], lanes: int) -> list[list[Job]]:
    """Jobs by lane, balanced by size; no lane is empty."""
    return [[work[index] for index in lane] for lane in balance([job.size for job in work], lanes)]


def _cut(files: Sequence[Input], share: int, wanted: int) -> list[tuple[Part, ...]]:
    """Files in order, cut into about equal shares; a file that is larger than one is read in several runs."""
    pieces = [
        Part(file, (part, parts))
        for file in files
        for parts in [max(1, min(wanted, -(-file.size // share)))]
        for part in range(parts)
    ]
    cut: list[list[Part]] = [[]]
    size = 0
    for piece in pieces:
        if cut[-1] and len(cut) < wanted and size + piece.size // 2 > share:
            cut.append([])
            size = 0
        cut[-1].append(piece)
        size += piece.size
    return [tuple(parts) for parts in cut]
