"""Paths noted on storage before they are written to, so that what a killed process leaves can be found.

Storage behind ``FileIO`` cannot be listed: notes are numbered, and looked for one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
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

    def paths(self, tasks: int) -> Iterator[str]:
        """Every path that tasks 0 to ``tasks`` - 1 have noted; a note that was not finished named nothing written."""
        for task in range(tasks):
            for note in self._notes(task):
                with self.io.new_input(note).open(seekable=False) as stream:
                    if path := stream.read().decode():
                        yield path

    def clear(self, tasks: int) -> None:
        """Delete the notes; the first of each task last, so that the others are found again if that ends halfway."""
        for task in range(tasks):
            for note in reversed(list(self._notes(task))):
                self.io.delete(note)

    def _notes(self, task: int) -> Iterator[str]:
        number = 0
        while self.io.new_input(path := self._path(task, number)).exists():
            yield path
            number += 1

    def _path(self, task: int, number: int) -> str:
        return f"{self.base}-{task}-{number}"
