"""Access to a table's storage: where its files may lie, and how they are written and deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table.metadata import TableMetadata

from producer.common.errors import OutsideTable

A = TypeVar("A")
B = TypeVar("B")

#: Properties that place files of a table outside of its location.
LOCATION_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
#: Storage operations that run at a time.
_THREADS: Final = 16


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

    def _check(self, path: str, action: str) -> None:
        if not self._locations.contain(path):
            raise OutsideTable(f"{path} lies outside of the table's locations: it is not {action}.")


def write_file(io: FileIO, path: str, contents: bytes) -> None:
    """Write a whole file, in place of one that exists. An error of the system names it, as Arrow's do not."""
    try:
        with io.new_output(path).create(overwrite=True) as stream:
            stream.write(contents)
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = path
        raise


def delete_if_exists(io: FileIO, path: str) -> None:
    """Delete a file if it exists."""
    with suppress(FileNotFoundError):
        io.delete(path)


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete those of the files that exist, in parallel."""
    map_parallel(partial(delete_if_exists, io), paths)


def delete_in_order(io: FileIO, paths: Iterable[str]) -> None:
    """Delete those of the files that exist, one after another.

    Raises:
        Exception: A file cannot be deleted. The files after it stay: another attempt finds by them all that are left.
    """
    for path in paths:
        delete_if_exists(io, path)


def map_parallel(function: Callable[[A], B], values: Iterable[A]) -> list[B]:
    """Return ``function`` of each value, in order; many calls at a time, because storage is slow but parallel."""
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(function, values))


def _normalize(path: str) -> str:
    """Return one spelling of a local path, which has several."""
    return path.removeprefix("file://").removeprefix("file:").rstrip("/")
