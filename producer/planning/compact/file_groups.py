"""File groups of a compaction: which data files are rewritten and why, and which of them together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from producer.common.sizes import count_text, size_text
from producer.iceberg.delete_file_index import ApplicableDeletes, DeleteFileIndex
from producer.iceberg.manifest_entry import LiveFile
from producer.model.plan import Rewrite
from producer.planning.compact.options import JobOrder, Options, Tier
from producer.planning.units import FileWithDeletes


class RewriteReason(Enum):
    """Why a file is rewritten. If several reasons apply, the first of these counts."""

    TOO_MANY_DELETES = auto()
    TOO_LARGE = auto()
    TOO_SMALL = auto()
    #: Every file is to be rewritten.
    REWRITE_ALL = auto()


@dataclass(frozen=True, slots=True)
class RewriteCandidate:
    """A data file to be rewritten."""

    file: LiveFile
    #: The equality deletes that may remove rows of it.
    deletes: tuple[ApplicableDeletes, ...]
    reason: RewriteReason
    #: Bytes without deleted rows, as far as these are known from metadata.
    live_size: int

    @property
    def with_deletes(self) -> FileWithDeletes:
        """The file with its equality deletes."""
        return self.file, self.deletes


class CandidateEvaluator:
    """Evaluates data files against the thresholds of a compaction.

    A file has too many deletes if ``delete-file-threshold`` delete files reach it (by scope, sequence number and the
    bounds of the key columns), or if vectors and its own position deletes have ``delete-ratio-threshold`` of its rows:
    how many rows an equality delete, or a delete for a whole partition, removes is unknown.
    """

    def __init__(self, rewrite: Rewrite, options: Options, index: DeleteFileIndex) -> None:
        self._rewrite = rewrite
        self._options = options
        self._index = index

    def evaluate(self, file: LiveFile) -> RewriteCandidate | None:
        """Return the rewrite candidate, or None if the file needs no rewrite."""
        options = self._options
        small = file.size < self._rewrite.min_size
        if options.tier is Tier.MINOR and not small and not options.rewrite_all:
            return None
        deletes = tuple(r for r in self._index.equality_deletes(file) if r.group.may_match(file, r.start))
        deleted = self._deleted_rows(file)
        deleted_ratio = deleted / file.record_count if file.record_count else 0.0
        too_many = options.delete_file_threshold or math.inf
        if deleted_ratio >= options.delete_ratio_threshold or self._delete_files(file, deletes) >= too_many:
            reason = RewriteReason.TOO_MANY_DELETES
        elif file.size > self._rewrite.max_size and file.record_count - deleted > 1:
            reason = RewriteReason.TOO_LARGE
        elif small:
            reason = RewriteReason.TOO_SMALL
        elif options.rewrite_all:
            reason = RewriteReason.REWRITE_ALL
        else:
            return None
        return RewriteCandidate(file, deletes, reason, round(file.size * (1 - deleted_ratio)))

    def _deleted_rows(self, file: LiveFile) -> int:
        vector = self._index.deletion_vector(file)
        own = [vector] if vector is not None else self._own_positions(file)
        return min(sum(delete.record_count for delete in own), file.record_count)

    def _delete_files(self, file: LiveFile, deletes: Iterable[ApplicableDeletes]) -> int:
        shared = self._index.partition_position_deletes(file)
        return (
            sum(len(applicable.group.deletes) - applicable.start for applicable in deletes)
            + (shared.count_likely(file) if shared is not None else 0)
            + len(self._own_positions(file))
            + (self._index.deletion_vector(file) is not None)
        )

    def _own_positions(self, file: LiveFile) -> list[LiveFile]:
        return [d for d in self._index.file_position_deletes(file) if d.partition_key == file.partition_key]


def describe(candidates: Iterable[RewriteCandidate], rewrite: Rewrite) -> str:
    """Describe why files are rewritten, such as ``3 small files, 1 file with many deletes``."""
    counts = Counter(candidate.reason for candidate in candidates)
    limit = size_text(rewrite.max_size)
    nouns = {
        RewriteReason.TOO_SMALL: ("small file", "small files"),
        RewriteReason.TOO_MANY_DELETES: ("file with many deletes", "files with many deletes"),
        RewriteReason.TOO_LARGE: (f"file above {limit}", f"files above {limit}"),
        RewriteReason.REWRITE_ALL: ("well-sized file", "well-sized files"),
    }
    return ", ".join(count_text(counts[reason], *pair) for reason, pair in nouns.items() if counts[reason])


@dataclass(frozen=True, slots=True)
class RewriteFileGroup:
    """Files of one partition, or of several that are written under another spec, to be rewritten together."""

    label: str
    candidates: tuple[RewriteCandidate, ...]
    #: Whether rows are routed to partitions one by one.
    routed: bool = False
    refused: str | None = None

    @property
    def cost(self) -> int:
        """Bytes of the files."""
        return sum(candidate.file.size for candidate in self.candidates)


_ORDERS: Final[dict[JobOrder, Callable[[RewriteFileGroup], int]]] = {
    JobOrder.NONE: lambda group: 0,
    JobOrder.BYTES_ASC: lambda group: group.cost,
    JobOrder.BYTES_DESC: lambda group: -group.cost,
    JobOrder.FILES_ASC: lambda group: len(group.candidates),
    JobOrder.FILES_DESC: lambda group: -len(group.candidates),
}


def split(group: RewriteFileGroup, limit: int) -> Iterator[RewriteFileGroup]:
    """Split a group into evenly sized ones of ``limit`` bytes at most, or of one file that is larger.

    There are as few as possible, since each may leave one file that is too small.
    """
    even_size = group.cost / max(1, -(-group.cost // limit))
    parts: list[list[RewriteCandidate]] = []
    size = 0
    for candidate in group.candidates:
        if not parts or size >= even_size or size + candidate.file.size > limit:
            parts.append([])
            size = 0
        parts[-1].append(candidate)
        size += candidate.file.size
    for number, part in enumerate(parts, 1):
        label = group.label if len(parts) == 1 else f"{group.label} {number}/{len(parts)}"
        yield replace(group, label=label, candidates=tuple(part))


def qualifies(candidates: Sequence[RewriteCandidate], rewrite: Rewrite, options: Options) -> bool:
    """Return whether files are worth rewriting together.

    They are if one of them is too large or has too many deletes, or if enough files, or enough bytes, become fewer
    files: the files of a rewrite are not rewritten again, even if no number of files is within the limits.
    """
    alone = (RewriteReason.TOO_MANY_DELETES, RewriteReason.TOO_LARGE)
    if options.rewrite_all or any(candidate.reason in alone for candidate in candidates):
        return bool(candidates)
    size = sum(candidate.file.size for candidate in candidates)
    enough = len(candidates) >= options.min_input_files or size > rewrite.target_size
    return enough and len(candidates) > max(1, -(-size // rewrite.max_size))


def in_order(bundles: Iterable[tuple[RewriteFileGroup, ...]], order: JobOrder) -> list[tuple[RewriteFileGroup, ...]]:
    """Return bundles of groups in the requested order, or as they come."""
    return sorted(bundles, key=lambda bundle: sum(map(_ORDERS[order], bundle)))


def truncate(groups: Iterable[RewriteFileGroup], rewrite: Rewrite, options: Options) -> Iterator[RewriteFileGroup]:
    """Yield the first groups, up to ``max-files-to-rewrite`` files; the last one in part, if that part qualifies."""
    if (left := options.max_files_to_rewrite) is None:
        yield from groups
        return
    for group in groups:
        part = replace(group, candidates=group.candidates[:left])
        left -= len(part.candidates)
        if len(part.candidates) == len(group.candidates) or qualifies(part.candidates, rewrite, options):
            yield part
        if left <= 0:
            return
