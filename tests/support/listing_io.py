"""Files on a local disk, accessed as object stores are."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Final

from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO


class ListingFileIO(PyArrowFileIO):
    """Lists folders, creates a file once, and deletes many in any order."""

    @property
    def requests_at_a_time(self) -> int:
        return 4

    def delete_all(self, locations: Iterable[str]) -> None:
        for location in sorted(locations, key=lambda location: location[::-1]):
            with suppress(FileNotFoundError):
                self.delete(location)

    def create_new(self, location: str, contents: bytes) -> bool | None:
        with suppress(FileExistsError), self.new_output(location).create() as stream:
            stream.write(contents)
            return True
        return False

    def list_folder(self, folder: str, *, deep: bool = False) -> list[str] | None:
        root = Path(folder.removeprefix("file://"))
        found = root.rglob("*") if deep else root.glob("*")
        return [f"{folder}/{path.relative_to(root)}" for path in found if path.is_file()]

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Do nothing: the disk is near."""

    def write_behind(self) -> AbstractContextManager[FileIO]:
        return nullcontext(self)

    def give_up(self) -> None:
        """Do nothing: nothing is repeated."""


#: How PyIceberg finds it.
LISTING_IO: Final = f"{ListingFileIO.__module__}.{ListingFileIO.__qualname__}"
