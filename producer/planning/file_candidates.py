"""Which data files a compaction would rewrite, each judged on its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from producer.common.sizes import size_text
from producer.iceberg.delete_index import DeleteIndex, Reach
from producer.iceberg.manifest_reader import LiveFile
from producer.model.plan import Rewrite
from producer.model.wording import counted
from producer.planning.rewrite_options import Thresholds
from producer.planning.units import Reached


class Why(StrEnum):
    """Why a file is rewritten; of several reasons, the first of these."""

    LADEN = "laden"
    LARGE = "large"
    SMALL = "small"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A data file that would be rewritten."""

    file: LiveFile
    #: The equality deletes that may remove rows of it.
    reaches: tuple[Reach, ...]
    why: Why
    #: Bytes that are left of it, as far as deletes are known by row.
    live_size: int

    @property
    def reached(self) -> Reached:
        """What units are made of."""
        return self.file, self.reaches

    @property
    def large(self) -> bool:
        """Whether it is to be split."""
        return self.why is Why.LARGE

    @property
    def laden(self) -> bool:
        """Whether it has too many deletes."""
        return self.why is Why.LADEN


class Evaluator:
    """Judges data files against thresholds.

    A file is too laden when ``delete-file-threshold`` delete files reach it (by scope, sequence number and the bounds
    of the key columns) or when vectors and its own position deletes have ``delete-ratio-threshold`` of its rows:
    nobody knows how many rows an equality delete, or one for a whole partition, removes.
    """

    def __init__(self, thresholds: Thresholds, index: DeleteIndex) -> None:
        self._thresholds = thresholds
        self._index = index

    def judge(self, file: LiveFile) -> Candidate | None:
        """Whether and why a file would be rewritten; None when it is well as it is."""
        limits = self._thresholds
        small = file.size < limits.min_size
        if limits.small_only and not small and not limits.everything:
            return None
        reaches = tuple(r for r in self._index.equality(file) if r.group.may_match(file, r.start))
        deleted = self._deleted_rows(file)
        share = deleted / file.record_count if file.record_count else 0.0
        if share >= limits.delete_ratio or self._delete_files(file, reaches) >= limits.delete_files:
            why = Why.LADEN
        elif file.size > limits.max_size and file.record_count - deleted > 1:
            why = Why.LARGE
        elif small:
            why = Why.SMALL
        elif limits.everything:
            why = Why.ASKED
        else:
            return None
        return Candidate(file, reaches, why, round(file.size * (1 - share)))

    def _deleted_rows(self, file: LiveFile) -> int:
        vector = self._index.vector(file)
        own = [vector] if vector is not None else self._own(file)
        return min(sum(delete.record_count for delete in own), file.record_count)

    def _delete_files(self, file: LiveFile, reaches: Iterable[Reach]) -> int:
        shared = self._index.shared_positions(file)
        return (
            sum(len(reach.group.deletes) - reach.start for reach in reaches)
            + (shared.likely(file) if shared is not None else 0)
            + len(self._own(file))
            + (self._index.vector(file) is not None)
        )

    def _own(self, file: LiveFile) -> list[LiveFile]:
        return [d for d in self._index.own_positions(file) if d.partition_key == file.partition_key]


def explain(candidates: Iterable[Candidate], rewrite: Rewrite) -> str:
    """Why files are rewritten, in a few words."""
    counts = Counter(candidate.why for candidate in candidates)
    texts = {
        Why.LADEN: ("file with many deletes", "files with many deletes"),
        Why.LARGE: (f"file above {size_text(rewrite.max_size)}", f"files above {size_text(rewrite.max_size)}"),
        Why.SMALL: ("small file", "small files"),
        Why.ASKED: ("file that is well", "files that are well"),
    }
    return ", ".join(
        counted(counts[why], *texts[why]) for why in (Why.SMALL, Why.LADEN, Why.LARGE, Why.ASKED) if counts[why]
    )
