"""Paths noted on storage before they are written to, so that what a killed process leaves can be found.

Storage behind ``FileIO`` cannot be listed: notes are numbered, and looked for one after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from pyiceberg.io import FileIO


@dataclass(frozen=True, slots=True)
class Journal:
    """The notes of one attempt. Each task counts its own from 0, without gaps.

    Args:
        io: The table's file access.
        base: What the notes' own paths begin with; no other attempt uses it.
    """

    io: FileIO
    base: str

    def note(self, task: int, number: int, path: str) -> None:
        """Note the path that a task writes to next."""
        with self.io.new_output(self._path(task, number)).create(overwrite=True) as stream:
            stream.write(path.encode())

    def paths(self, tasks: int, at_least: int = 0) -> Iterator[str]:
        """Every path that tasks 0 to ``tasks`` - 1 have noted; a note that was not finished named nothing written.

        Args:
            tasks: How many tasks took notes.
            at_least: How many notes of each task to look for even where earlier ones have been cleared.
        """
        for task in range(tasks):
            for note in self._notes(task, at_least):
                with suppress(FileNotFoundError), self.io.new_input(note).open(seekable=False) as stream:
                    if path := stream.read().decode(errors="replace"):  # what is no text names no file of ours
                        yield path

    def clear(self, tasks: int, at_least: int = 0) -> None:
        """Delete the notes; the first of each task last, so that the others are found again if that ends halfway.

        Safe to run side by side. The arguments are those of :meth:`paths`.
        """
        for task in range(tasks):
            for note in reversed(list(self._notes(task, at_least))):
                with suppress(FileNotFoundError):
                    self.io.delete(note)

    def _notes(self, task: int, at_least: int) -> Iterator[str]:
        for number in itertools.count():
            if self.io.new_input(path := self._path(task, number)).exists():
                yield path
            elif number >= at_least:
                return

    def _path(self, task: int, number: int) -> str:
        return f"{self.base}-{task}-{number}"
