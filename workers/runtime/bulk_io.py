"""Several files at a time, where each request to storage takes long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol, TypeVar, runtime_checkable

from pyiceberg.io import FileIO

T = TypeVar("T")

#: Files that are requested before they are opened, at most: of each up to a megabyte waits in memory.
_MAX_AHEAD: Final = 64


@runtime_checkable
class BulkFileIO(Protocol):
    """File access that can read ahead and write behind."""

    @property
    def requests_at_a_time(self) -> int:
        """How many requests are made at a time."""

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Begin to read files that are opened soon."""

    def write_behind(self) -> AbstractContextManager[FileIO]:
        """Return access whose small files are written while the next are made; all are there after its block."""

    def give_up(self) -> None:
        """Repeat no request any more: what is read or written is not wanted."""


def opened_soon(io: FileIO, items: Sequence[T], path: Callable[[T], str]) -> Iterator[T]:
    """Yield items, each of which opens a file, while the files of those after it are requested."""
    ahead = min(io.requests_at_a_time, _MAX_AHEAD) if isinstance(io, BulkFileIO) else 0
    for index, item in enumerate(items):
        if isinstance(io, BulkFileIO):
            io.read_ahead(path(later) for later in items[index + ahead - 1 if index else 0 : index + ahead])
        yield item


def write_behind(io: FileIO) -> AbstractContextManager[FileIO]:
    """Return access to write several files, at a time where storage is slow; all are written after its block.

    Raises:
        OSError: At the end of the block: a file could not be written.
    """
    return io.write_behind() if isinstance(io, BulkFileIO) else nullcontext(io)


def give_up(io: FileIO) -> None:
    """Repeat no request any more: what is read or written is not wanted."""
    if isinstance(io, BulkFileIO):
        io.give_up()
