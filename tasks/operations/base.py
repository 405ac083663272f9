"""What a commit is told by the operation whose work it commits: what changes, and what other writers kept from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from producer.iceberg.manifest_entry import NewFile
from producer.iceberg.manifest_reader import LiveFile
from producer.model.job import Failure
from tasks.job.branch_head import Head


@dataclass(frozen=True)
class Setback:
    """A part of a round that is not committed, since other writers changed what it was planned from."""

    #: What is left to do: equality deletes, or data files (compaction).
    paths: frozenset[str]
    #: What is reported of it unless it is planned again.
    failure: Failure


@dataclass(frozen=True)
class Additions:
    """The files that a commit attempt adds."""

    files: tuple[NewFile, ...] = ()
    #: Paths of those that were written for this attempt alone; they go when it comes to nothing.
    written: tuple[str, ...] = ()


class Change(Protocol):
    """What one commit attempt changes on one head."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to commit."""

    @property
    def operation(self) -> Operation:
        """What kind of snapshot it makes."""

    @property
    def setbacks(self) -> tuple[Setback, ...]:
        """What has to be planned again."""

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Units whose staged work must never be committed, and why."""

    @property
    def removed(self) -> tuple[LiveFile, ...]:
        """The live files that leave."""

    def additions(self, table: Table, name: str) -> Additions:
        """The files that are added; writes those of them that depend on the head.

        Args:
            table: As it was loaded for this attempt.
            name: What the names of all files carry that are written for this attempt.
        """


class Rules(Protocol):
    """When a commit of an operation is right. One object serves all attempts at a commit and may keep what it read."""

    def change(self, table: Table, head: Head) -> Change:
        """What of the staged work may be committed on a head.

        Args:
            table: As it was loaded for this attempt.
            head: The head of the plan's branch in it.

        Raises:
            Conflict: the plan as a whole no longer fits the branch.
        """

    def left_behind(self, table: Table) -> tuple[Setback, ...]:
        """What a commit that has happened, perhaps long ago, left to be planned again."""
