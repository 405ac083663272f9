"""Where the files of a table may lie: what a record or a message names elsewhere is neither committed nor deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Self

from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.table.metadata import TableMetadata

from producer.common.errors import Elsewhere

#: Properties by which a table has its files elsewhere than below its location.
_PROPERTIES: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


@dataclass(frozen=True, slots=True)
class Places:
    """Folders, below which all files of one table are written."""

    roots: tuple[str, ...]

    @classmethod
    def of(cls, metadata: TableMetadata) -> Self:
        """Those of a table."""
        named = (metadata.properties.get(name) for name in _PROPERTIES)
        return cls.at(metadata.location, *(root for root in named if root))

    @classmethod
    def at(cls, *roots: str) -> Self:
        """Those of a table that is gone, as far as they are known."""
        return cls(tuple(_plain(root) for root in roots))

    def hold(self, path: str) -> bool:
        """Whether a path lies in one of them, and nothing in it leads out again."""
        plain = _plain(path)
        return ".." not in plain.split("/") and any(plain.startswith(f"{root}/") for root in self.roots)


class Fenced(FileIO):
    """Access to one table's files, by which nothing is written or deleted outside of its places.

    Whatever a plan, a record or a table's property makes of a path: this is where it ends. Files are read anywhere,
    since a table may refer to files that it was given from elsewhere.
    """

    def __init__(self, io: FileIO, places: Places) -> None:
        super().__init__(io.properties)
        self._io = io
        self._places = places

    def new_input(self, location: str) -> InputFile:
        """A file to be read."""
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to be written.

        Raises:
            Elsewhere: it would lie outside of the table.
        """
        self._check(location, "written")
        return self._io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file.

        Raises:
            Elsewhere: it lies outside of the table.
        """
        self._check(location if isinstance(location, str) else location.location, "deleted")
        self._io.delete(location)

    def _check(self, path: str, what: str) -> None:
        if not self._places.hold(path):
            raise Elsewhere(f"{path} lies outside of the table's locations: it is not {what}.")


def _plain(path: str) -> str:
    """One spelling of the several that local paths have."""
    local = path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else path
    return local.rstrip("/")
