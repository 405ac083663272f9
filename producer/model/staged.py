"""What is left beside the table: plans and attempts that were begun, what was staged, commits on their way."""

from __future__ import annotations

from pydantic import Field

from producer.model.job import Value
from producer.model.plan import Scope, VectorRef


class StagedDeleteFile(Value):
    """A position delete file that was written and is not yet committed."""

    path: str
    size: int
    records: int
    column_sizes: dict[int, int]
    lower: tuple[str, int]
    upper: tuple[str, int]
    split_offsets: tuple[int, ...]
    scope: int
    #: Paths of the data files whose rows it names.
    targets: tuple[str, ...]


class StagedVector(Value):
    """A deletion vector that was written and is not yet committed."""

    path: str
    #: Of the whole Puffin file.
    size: int
    offset: int
    content_size: int
    cardinality: int
    new_positions: int
    scope: int
    target: str
    #: The vector that is part of it, and leaves with the commit.
    merged: VectorRef | None
    #: Paths of file-scoped position delete files that are part of it, and leave with the commit.
    absorbed: tuple[str, ...] = ()

    @property
    def ref(self) -> VectorRef:
        """Where the vector lies."""
        return VectorRef(path=self.path, offset=self.offset, size=self.content_size, cardinality=self.cardinality)


class StagedDataFile(Value):
    """A data file that a compaction wrote and that is not yet committed. Metrics are by field id."""

    path: str
    size: int
    records: int
    #: Index into the staged unit's scopes, which are those of what was written.
    scope: int
    column_sizes: dict[int, int]
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    #: Single values in hexadecimal (spec, Appendix D).
    lower_bounds: dict[int, str]
    upper_bounds: dict[int, str]
    split_offsets: tuple[int, ...]


class Staged(Value):
    """The record that a unit is staged; written last of all."""

    unit: int
    attempt: int
    scopes: tuple[Scope, ...]
    deletes: tuple[StagedDeleteFile, ...] = ()
    vectors: tuple[StagedVector, ...] = ()
    #: Paths of the data files that ``data`` takes the place of (compaction).
    inputs: tuple[str, ...] = ()
    data: tuple[StagedDataFile, ...] = ()
    #: Rows of the inputs as they were counted, deleted ones included.
    read_rows: int = 0
    #: Rows of them that deletes had removed, and that ``data`` does not hold.
    deleted_rows: int = 0
    #: For partition-scoped position delete files that were read: every data file that each names.
    named: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    new_positions: int = 0
    seconds: float = 0.0

    @property
    def paths(self) -> frozenset[str]:
        """Every file that was written."""
        return frozenset(file.path for files in (self.deletes, self.vectors, self.data) for file in files)


class Claim(Value):
    """A number that somebody has taken."""

    #: Tells those apart that took the same number.
    token: str


class PlanNote(Claim):
    """That somebody plans a round, noted before anything else of it is written; the token is the plan's."""

    units: int


class Attempt(Claim):
    """A try at a unit, noted before anything else is written."""

    unit: int
    number: int
    host: str
    started: float
    #: Every path that may be written.
    paths: tuple[str, ...] = ()
    #: Where paths that could not be told beforehand are noted: the base of a journal, and its number of tasks.
    journal: str | None = None
    tasks: int = 0


class CommitNote(Claim):
    """That a committer is at a round's commit, noted before it writes anything and until its fate is known."""

    #: When the attempt began that is on its way now.
    started: float
    #: The branch's head that this attempt builds on: it cannot happen on another one.
    head: int | None = None
    #: The snapshots that it builds, by the name that their files share.
    snapshots: dict[str, int] = Field(default_factory=dict)
    #: Whether all of it is known to be in the table, or never to come there.
    settled: bool = False
    #: Whether something of it is in the table.
    happened: bool = False
