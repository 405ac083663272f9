"""How the partitions of a table are cut and bundled into units of about the same cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from producer.iceberg.delete_index import Reach
from producer.iceberg.manifest_reader import LiveFile
from producer.iceberg.partitions import PartitionKey

#: Bytes of data that a share has at least for each byte of deletes. A byte of deletes costs about twice as much as one
#: of data: with less data most of a unit's work would be what the others do too.
_DATA_PER_DELETES: Final = 4


class Bundled(Protocol):
    """A share of any kind of work."""

    @property
    def label(self) -> str:
        """What a person reads of it."""

    @property
    def cost(self) -> int:
        """Bytes that will be read."""

    @property
    def refused(self) -> str | None:
        """Why it cannot be worked on."""


B = TypeVar("B", bound=Bundled)


@dataclass(frozen=True, slots=True)
class Share:
    """Data files of one partition together with the deletes that reach them; cost is in bytes that will be read."""

    scope: PartitionKey
    #: What a person reads of the partition.
    label: str
    files: tuple[tuple[LiveFile, tuple[Reach, ...]], ...]
    cost: int
    refused: str | None = None


@dataclass
class _Chunk:
    files: list[tuple[LiveFile, tuple[Reach, ...]]] = field(default_factory=list)
    cost: int = 0


def split(share: Share, costs: dict[str, int], deletes_cost: int, limit: int) -> Iterator[Share]:
    """Cut a partition whose cost exceeds ``limit`` into shares below it.

    Every share reads the partition's deletes again, so that a share is several times as large as they are.
    """
    room = max(limit - deletes_cost, _DATA_PER_DELETES * deletes_cost, 1)
    chunks, current = [], _Chunk()
    for file in share.files:
        cost = costs[file[0].path]
        if current.files and current.cost + cost > room:
            chunks.append(current)
            current = _Chunk()
        current.files.append(file)
        current.cost += cost
    chunks.append(current)
    for number, chunk in enumerate(chunks, 1):
        label = share.label if len(chunks) == 1 else f"{share.label} {number}/{len(chunks)}"
        yield replace(share, label=label, files=tuple(chunk.files), cost=chunk.cost + deletes_cost)


def bundle(shares: Iterable[B], limit: int) -> Iterator[tuple[B, ...]]:
    """Put small shares together, in order, up to ``limit``; refused ones stay apart, so as to spoil nothing else."""
    current: list[B] = []
    for share in shares:
        if share.refused is not None:
            yield (share,)
            continue
        if current and sum(s.cost for s in current) + share.cost > limit:
            yield tuple(current)
            current = []
        current.append(share)
    if current:
        yield tuple(current)


def label(shares: Sequence[Bundled]) -> str:
    """What a person reads of a bundle."""
    first = shares[0].label
    return first if len(shares) == 1 else f"{first} +{len(shares) - 1} more"
