"""Groups of data files that are rewritten together: how they are cut, which are worth it, which come first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from producer.planning.file_candidates import Candidate
from producer.planning.options import JobOrder
from producer.planning.rewrite_options import Thresholds


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one partition, or of several that are written under another spec, to be rewritten together."""

    label: str
    candidates: tuple[Candidate, ...]
    #: Whether rows are routed to partitions one by one.
    routed: bool = False
    refused: str | None = None

    @property
    def cost(self) -> int:
        """Bytes of the files."""
        return sum(candidate.file.size for candidate in self.candidates)


_ORDERS: Final[dict[JobOrder, Callable[[Sequence[FileGroup]], int]]] = {
    JobOrder.NONE: lambda groups: 0,
    JobOrder.BYTES_ASC: lambda groups: sum(group.cost for group in groups),
    JobOrder.BYTES_DESC: lambda groups: -sum(group.cost for group in groups),
    JobOrder.FILES_ASC: lambda groups: sum(len(group.candidates) for group in groups),
    JobOrder.FILES_DESC: lambda groups: -sum(len(group.candidates) for group in groups),
}


def cut(group: FileGroup, limit: int) -> Iterator[FileGroup]:
    """Cut a group into evenly sized ones of ``limit`` bytes at most, or of one file that is larger.

    They are as few as can be, for each may leave one file that is too small.
    """
    share = group.cost / max(1, -(-group.cost // limit))
    parts: list[list[Candidate]] = []
    size = 0
    for candidate in group.candidates:
        if not parts or size >= share or size + candidate.file.size > limit:
            parts.append([])
            size = 0
        parts[-1].append(candidate)
        size += candidate.file.size
    for number, part in enumerate(parts, 1):
        label = group.label if len(parts) == 1 else f"{group.label} {number}/{len(parts)}"
        yield replace(group, label=label, candidates=tuple(part))


def worthwhile(candidates: Sequence[Candidate], thresholds: Thresholds) -> bool:
    """Whether files are rewritten together.

    They are when one of them is too large or has too many deletes, or when enough of them, or enough bytes, become
    fewer files: what was rewritten is not rewritten again, even where no number of files is within the limits.
    """
    if thresholds.everything or any(candidate.laden or candidate.large for candidate in candidates):
        return bool(candidates)
    size = sum(candidate.file.size for candidate in candidates)
    enough = len(candidates) >= thresholds.min_input_files or size > thresholds.target_size
    return enough and len(candidates) > max(1, -(-size // thresholds.max_size))


def in_order(groups: Iterable[FileGroup], order: JobOrder) -> list[FileGroup]:
    """Groups in the order that was asked for, else as they come."""
    return sorted(groups, key=lambda group: _ORDERS[order]([group]))


def bundles_in_order(bundles: Iterable[tuple[FileGroup, ...]], order: JobOrder) -> list[tuple[FileGroup, ...]]:
    """Bundles of groups in the order that was asked for, else as they come."""
    return sorted(bundles, key=_ORDERS[order])


def truncated(groups: Iterable[FileGroup], thresholds: Thresholds) -> Iterator[FileGroup]:
    """The first groups, with ``max-files-to-rewrite`` files in all; the last one in part, if that is worth it."""
    left = thresholds.most_files
    for group in groups:
        part = replace(group, candidates=group.candidates[:left])
        left -= len(part.candidates)
        if len(part.candidates) == len(group.candidates) or worthwhile(part.candidates, thresholds):
            yield part
        if left <= 0:
            return
