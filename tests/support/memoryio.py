"""Storage in a dictionary: object stores without a network."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream


class MemoryIO(FileIO):
    """Keeps files by their location.

    Attributes:
        files: What is there.
        log: Every change as ("write" or "delete", location), in order.
        before: Called ahead of each change; what it raises prevents the change.
        after: Called with the location of each file that was written.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.log: list[tuple[str, str]] = []
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[str], None] = lambda location: None

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self)

    def new_output(self, location: str) -> OutputFile:
        return _Output(location, self)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        self.before()
        if path not in self.files:
            raise FileNotFoundError(path)
        del self.files[path]
        self.log.append(("delete", path))


class ListingIO(MemoryIO):
    """The same as object stores are: folders are listed, a file is created once, many are deleted in any order."""

    @property
    def requests_at_a_time(self) -> int:
        return 4

    def delete_all(self, locations: Iterable[str]) -> None:
        for path in sorted(locations, key=lambda path: path[::-1]):
            if path in self.files:
                self.delete(path)

    def create_new(self, location: str, contents: bytes) -> bool | None:
        if location in self.files:
            return False
        with self.new_output(location).create() as stream:
            stream.write(contents)
        return True

    def list_folder(self, folder: str, *, deep: bool = False) -> list[str] | None:
        names = {path: path.removeprefix(f"{folder}/") for path in self.files if path.startswith(f"{folder}/")}
        return [path for path, name in names.items() if deep or "/" not in name]

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Do nothing: all of it is in memory."""

    def write_behind(self) -> AbstractContextManager[FileIO]:
        return nullcontext(self)

    def give_up(self) -> None:
        """Do nothing: nothing is repeated."""


class _Input(InputFile):
    def __init__(self, location: str, store: MemoryIO) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return len(self._store.files[self.location])

    def exists(self) -> bool:
        return self.location in self._store.files

    def open(self, seekable: bool = True) -> InputStream:
        if not self.exists():
            raise FileNotFoundError(self.location)
        return io.BytesIO(self._store.files[self.location])


class _Output(OutputFile):
    def __init__(self, location: str, store: MemoryIO) -> None:
        super().__init__(location)
        self._store = store

    def __len__(self) -> int:
        return len(self._store.files[self.location])

    def exists(self) -> bool:
        return self.location in self._store.files

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._store)

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return _Stream(self.location, self._store)


class _Stream(io.BytesIO):
    """Appears with its content when it is closed, as objects do."""

    def __init__(self, location: str, store: MemoryIO) -> None:
        super().__init__()
        self._location = location
        self._store = store

    def close(self) -> None:
        if not self.closed:
            self._store.before()
            self._store.files[self._location] = self.getvalue()
            self._store.log.append(("write", self._location))
            self._store.after(self._location)
        super().close()
