"""Files of a table: written, created once, read ahead and deleted, with as few requests as the storage allows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from pyiceberg.io import FileIO

from producer.storage.concurrency import request_limit

A = TypeVar("A")
B = TypeVar("B")


@runtime_checkable
class BulkFileIO(Protocol):
    """File access that does more than PyIceberg's asks for."""

    @property
    def requests_at_a_time(self) -> int:
        """How many requests are made at a time."""

    def delete_all(self, locations: Iterable[str]) -> None:
        """Delete those of the files that exist."""

    def create_new(self, location: str, contents: bytes) -> bool | None:
        """Write a file unless one exists; return whether it was written, None if that is not one step."""

    def list_folder(self, folder: str, *, deep: bool = False) -> list[str] | None:
        """Return the files of a folder, with ``deep`` those of folders in it too; None if the storage does not list."""

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Begin to read files that are opened soon."""

    def write_behind(self) -> AbstractContextManager[FileIO]:
        """Give access whose small files are written while the next are made; all are there after the block."""

    def give_up(self) -> None:
        """Repeat no request any more: what is read or written is not wanted."""


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
    """Delete those of the files that exist, side by side or many at once."""
    if isinstance(io, BulkFileIO):
        io.delete_all(paths)
    else:
        map_parallel(partial(delete_if_exists, io), paths)


def create_file(io: FileIO, path: str, contents: bytes) -> bool | None:
    """Write a file unless one exists.

    Returns:
        Whether it was written; None if the storage cannot do both in one step, and nothing was written.
    """
    return io.create_new(path, contents) if isinstance(io, BulkFileIO) else None


def list_folder(io: FileIO, folder: str, *, deep: bool = False) -> list[str] | None:
    """Return the files of a folder, or None where it cannot be listed: PyIceberg's file access does not.

    With ``deep`` those of folders in it are among them.
    """
    return io.list_folder(folder, deep=deep) if isinstance(io, BulkFileIO) else None


def start(operation: Callable[[], B]) -> Future[B]:
    """Begin an operation on storage; whoever needs its result, or that it has ended, waits for it."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(operation)
    finally:
        pool.shutdown(wait=False)


def read_ahead(io: FileIO, paths: Iterable[str]) -> None:
    """Begin to read files that are opened soon, where that helps."""
    if isinstance(io, BulkFileIO):
        io.read_ahead(paths)


def delete_in_order(io: FileIO, paths: Iterable[str]) -> None:
    """Delete those of the files that exist, one after another.

    Raises:
        Exception: A file cannot be deleted. The files after it stay: another attempt finds by them all that are left.
    """
    for path in paths:
        delete_if_exists(io, path)


def write_behind(io: FileIO) -> AbstractContextManager[FileIO]:
    """Give access to write several small files at a time, where that helps; all are there after the block."""
    return io.write_behind() if isinstance(io, BulkFileIO) else nullcontext(io)


def give_up(io: FileIO) -> None:
    """Repeat no request any more: what is read or written is not wanted."""
    if isinstance(io, BulkFileIO):
        io.give_up()


def map_parallel(function: Callable[[A], B], values: Iterable[A]) -> list[B]:
    """Return ``function`` of each value, in order; many calls at a time, because storage is slow but parallel."""
    with ThreadPoolExecutor(request_limit().requests) as pool:
        return list(pool.map(function, values))
