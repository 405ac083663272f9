"""What an operation provides on the workers' side: an executor for its units, and rules for the commits of its rounds.

An operation is a plug: it makes an :class:`Executor` and implements :class:`CommitRules`, puts both into a
:class:`TaskOperation`, and is listed in :mod:`tasks.operations.registry`. Nothing else names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import TableRequirement, TableUpdate

from producer.iceberg.manifest_entry import LiveFile, NewFile
from producer.model.job import Failure
from producer.model.plan import Plan, Unit
from producer.model.staged import Attempt, Staged
from tasks.job.branch_head import BranchHead
from tasks.job.context import JobContext
from workers.runtime.machine import Budget

#: Called with the number of files done and the number of all files.
Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True)
class Executor:
    """One attempt at a unit, ready to run."""

    #: The attempt with all that it may write; it is recorded before :attr:`run` writes anything.
    claim: Attempt
    #: Does the work, and describes what was written. Takes where Spark shuffles and spills (None for the system's
    #: temporary directory), an empty folder that is deleted afterwards, and what is called with the progress.
    #: Raises DataError if a file cannot be used; trying again does not help.
    run: Callable[[Path | None, Path, Progress], Staged]


@dataclass(frozen=True)
class Replan:
    """A part of a round that is not committed and must be planned again: other writers changed its inputs."""

    #: What is left to do: paths of equality deletes, or of data files (compaction).
    paths: frozenset[str]
    #: What the report says of it if it is not planned again.
    failure: Failure


@dataclass(frozen=True)
class Additions:
    """The files that a commit attempt adds."""

    files: tuple[NewFile, ...] = ()
    #: Paths of those that were written for this attempt alone; they are deleted when the attempt fails.
    written: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoChange:
    """Nothing to commit: nothing is left to do, or the operation only reads."""

    #: Whether the table has what was planned already, from an earlier attempt of this job.
    is_applied: bool = False
    #: Counters of the report that the round adds to, by the report's field.
    counts: Mapping[str, int] = field(default_factory=dict)
    replans: tuple[Replan, ...] = ()
    #: Units whose staged work must never be committed, and why.
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SnapshotChange:
    """One new snapshot on the branch. The report's counters follow from the snapshot's summary."""

    operation: Operation
    #: The live files that leave.
    removed: tuple[LiveFile, ...] = ()
    #: Manifests of the head whose live entries move to new manifests; alone, this changes no file.
    rewritten_manifests: tuple[ManifestFile, ...] = ()
    #: Returns the files that are added, and writes those that depend on the head. Takes the table as it was loaded for
    #: the attempt, and the name that all files of the attempt carry.
    additions: Callable[[Table, str], Additions] = lambda table, name: Additions()
    replans: tuple[Replan, ...] = ()
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True, kw_only=True)
class MetadataChange:
    """Updates of the table's metadata without a snapshot, such as the expiry of snapshots.

    They are committed in one compare-and-swap. The commit loop adds two requirements to those given here: the table's
    UUID, and the head of the branch, so that other committers can tell from the head that the attempt fails.

    An attempt without an answer may reach the catalog after the next one: updates must be harmless when they are
    applied twice, or carry requirements that the first application breaks.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...] = ()
    #: Returns whether the metadata has the updates; decides what became of an attempt without an answer.
    is_applied: Callable[[TableMetadata], bool]
    counts: Mapping[str, int] = field(default_factory=dict)
    replans: tuple[Replan, ...] = ()
    failures: tuple[Failure, ...] = ()


#: What one commit attempt changes on one head.
Change: TypeAlias = NoChange | SnapshotChange | MetadataChange


class CommitRules(Protocol):
    """Decides whether a commit is correct. One object serves all attempts at a commit and may keep what it has read."""

    def change(self, table: Table, head: BranchHead) -> Change:
        """Return what of the staged work may be committed on the branch's head in a freshly loaded table.

        Raises:
            Conflict: The plan as a whole no longer fits the branch.
        """

    def replans_after(self, table: Table) -> tuple[Replan, ...]:
        """Return what a snapshot of this round, which may have been committed long ago, left to be planned again."""


@dataclass(frozen=True)
class TaskOperation:
    """Everything that the steps of a job need to know of an operation."""

    #: Prepares an attempt at a unit on the table as it is now; refuses a table that was dropped or replaced, and inputs
    #: that are not the table's files.
    executor: Callable[[JobContext, Plan, Unit, Attempt, Budget], Executor]
    #: Returns the commit rules for the units of a round that are staged, by number.
    commit_rules: Callable[[JobContext, Plan, Mapping[int, Staged]], CommitRules]
    #: Describes what a unit wrote, in a line for Flower.
    summarize: Callable[[Staged], str]
