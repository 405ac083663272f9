"""What staging asks of each kind of work: what it may write, and the writing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pyiceberg.io import FileIO

from producer.model.staged import Attempt, Staged
from producer.state.records import delete_files
from workers.formats.output_files import Journal

#: Called with files done and files in all.
Progress = Callable[[int, int], None]


class Work(Protocol):
    """One attempt at a unit, ready to be run."""

    @property
    def claim(self) -> Attempt:
        """The attempt with all that it may write; noted before :meth:`run` writes anything."""

    def run(self, spill: Path | None, scratch: Path, progress: Progress) -> Staged:
        """Do the work, and describe what was written.

        Args:
            spill: Where Spark shuffles and spills; None for the system's temporary directory.
            scratch: An empty folder that is deleted afterwards.
            progress: Told how many of the unit's data files are done.

        Raises:
            DataError: a file cannot be used; trying again does not help.
        """


def discard(io: FileIO, claim: Attempt) -> None:
    """Delete all that an attempt has written, when it is certain that nobody has seen it staged."""
    delete_files(io, claim.paths)
    if claim.journal is not None:
        journal = Journal(io, claim.journal)
        delete_files(io, journal.paths(claim.tasks))
        journal.clear(claim.tasks)
