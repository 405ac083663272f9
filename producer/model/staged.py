"""Records beside the table: claims of plans, attempts and commits, and what an attempt staged. Frozen, kept as JSON."""

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
    #: The vector that is part of it, and that the commit removes.
    merged: VectorRef | None
    #: Paths of file-scoped position delete files that are part of it, and that the commit removes.
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
    #: Index into the staged unit's scopes, the partitions of the written files.
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
    """The record that a unit is staged; the last thing that an attempt writes."""

    unit: int
    attempt: int
    scopes: tuple[Scope, ...]
    deletes: tuple[StagedDeleteFile, ...] = ()
    vectors: tuple[StagedVector, ...] = ()
    #: Paths of the data files that ``data`` replaces (compaction).
    inputs: tuple[str, ...] = ()
    data: tuple[StagedDataFile, ...] = ()
    #: Rows of the inputs, with the deleted ones.
    read_rows: int = 0
    #: Rows of the inputs that deletes removed.
    deleted_rows: int = 0
    #: The data files that each partition-scoped position delete file names, as far as these were read.
    named: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    new_positions: int = 0
    seconds: float = 0.0

    @property
    def paths(self) -> frozenset[str]:
        """Every file that was written."""
        return frozenset(file.path for files in (self.deletes, self.vectors, self.data) for file in files)


class Claim(Value):
    """A claim of a number."""

    #: Distinguishes claims of the same number.
    token: str


class PlanNote(Claim):
    """The claim of a round by a planner, written before anything else of it; its token is the plan's."""

    units: int


class Attempt(Claim):
    """An attempt at a unit, recorded before it writes anything else."""

    unit: int
    number: int
    host: str
    started: float
    #: Every path that may be written.
    paths: tuple[str, ...] = ()
    #: The base of the journal that has the paths which are not known in advance, and the number of its tasks.
    journal: str | None = None
    tasks: int = 0


class CommitNote(Claim):
    """A commit of a round, recorded before it writes anything and until its outcome is known."""

    #: When the current attempt began.
    started: float
    #: The branch's head that it builds on: on another head it cannot succeed.
    head: int | None = None
    #: The snapshots that it writes, by the name that their files share.
    snapshots: dict[str, int] = Field(default_factory=dict)
    #: Whether the outcome is known: all of it is in the table, or never will be.
    settled: bool = False
    #: Whether any of it is in the table.
    happened: bool = False
