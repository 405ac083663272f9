"""Where the files of a table may lie, and file access that keeps to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table.metadata import TableMetadata

from producer.common.errors import OutsideTable
from producer.storage.concurrency import request_limit
from producer.storage.files import create_file, delete_files, give_up, list_folder, read_ahead, write_behind

#: Properties that place files of a table outside of its location.
LOCATION_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True)
class TableLocations:
    """The folders that hold all files of one table."""

    roots: tuple[str, ...]

    @classmethod
    def of(cls, metadata: TableMetadata) -> Self:
        """Return the locations of a table."""
        configured = (metadata.properties.get(name) for name in LOCATION_PROPERTIES)
        return cls.at(metadata.location, *(root for root in configured if root))

    @classmethod
    def at(cls, *roots: str) -> Self:
        """Return the locations of a table that cannot be loaded, from the folders that are known."""
        return cls(tuple(_normalize(root) for root in roots))

    def contain(self, path: str) -> bool:
        """Return whether a path lies below one of the folders; one with ``..`` never does."""
        normalized = _normalize(path)
        return ".." not in normalized.split("/") and any(normalized.startswith(f"{root}/") for root in self.roots)


class FencedFileIO(FileIO):
    """Access to one table's files that writes and deletes nothing outside of the table's locations.

    Plans, records and table properties all name paths; this is where each path is checked. Files are read anywhere,
    because a table may refer to files that were added to it from elsewhere.
    """

    def __init__(self, io: FileIO, locations: TableLocations) -> None:
        super().__init__(io.properties)
        self._io = io
        self._locations = locations

    @property
    def requests_at_a_time(self) -> int:
        """How many requests are made at a time."""
        return request_limit().requests

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write.

        Raises:
            OutsideTable: The file would lie outside of the table.
        """
        self._check(location, "written")
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file.

        Raises:
            OutsideTable: The file lies outside of the table.
        """
        self._check(location if isinstance(location, str) else location.location, "deleted")
        self._io.delete(location)

    def delete_all(self, locations: Iterable[str]) -> None:
        """Delete those of the files that exist.

        Raises:
            OutsideTable: A file lies outside of the table; none is deleted.
        """
        paths = list(locations)
        for path in paths:
            self._check(path, "deleted")
        delete_files(self._io, paths)

    def create_new(self, location: str, contents: bytes) -> bool | None:
        """Write a file unless one exists; see :func:`producer.storage.files.create_file`.

        Raises:
            OutsideTable: The file would lie outside of the table.
        """
        self._check(location, "written")
        return create_file(self._io, location, contents)

    def list_folder(self, folder: str, *, deep: bool = False) -> list[str] | None:
        """Return the files of a folder, or None where it cannot be listed."""
        return list_folder(self._io, folder, deep=deep)

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Begin to read files that are opened soon."""
        read_ahead(self._io, locations)

    @contextmanager
    def write_behind(self) -> Iterator[FileIO]:
        """Give access to write several small files at a time; all are there after the block."""
        with write_behind(self._io) as io:
            yield FencedFileIO(io, self._locations)

    def give_up(self) -> None:
        """Repeat no request any more: what is read or written is not wanted."""
        give_up(self._io)

    def _check(self, path: str, action: str) -> None:
        if not self._locations.contain(path):
            raise OutsideTable(f"{path} lies outside of the table's locations: it is not {action}.")


def _normalize(path: str) -> str:
    """Return one spelling of a local path, which has several."""
    return path.removeprefix("file://").removeprefix("file:").rstrip("/")
