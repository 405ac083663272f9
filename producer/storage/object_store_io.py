"""PyIceberg's file access on object stores, with as few requests as there can be.

A small object is one request to read and one to write, a large one its end and the ranges that are read of it. Objects
are deleted many at a time, and nothing but objects is made: no markers of folders.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import obstore
from obstore.store import AzureStore, ObjectStore, S3Store
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io
from pyiceberg.typedef import EMPTY_DICT, Properties

from producer.storage.access import ObjectStoreAccess
from producer.storage.concurrency import limit_requests, request_limit
from producer.storage.errors import StorageError
from producer.storage.input_stream import TAIL_BYTES, ObjectInputStream
from producer.storage.metadata_cache import METADATA_CACHE, is_metadata_file
from producer.storage.output_stream import PART_BYTES, ObjectOutputStream, WritesBehind
from producer.storage.stores import ObjectPath

#: Parts of one object that are written at a time.
_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class _Tail:
    """The end of an object, and the size of all of it."""

    size: int
    bytes: memoryview


class ObjectStoreFileIO(FileIO):
    """Access to files with the properties that PyIceberg has for its own, which reads what lies on no object store.

    It can be pickled; each process opens stores of its own.
    """

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        self._access = ObjectStoreAccess(properties)
        self._others: dict[str, FileIO] = {}
        self._ahead: dict[str, Future[_Tail]] = {}
        self._behind: WritesBehind | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_others": {}, "_ahead": {}, "_behind": None, "_requests": request_limit().requests}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        limit_requests(self.__dict__.pop("_requests"))  # Spark's tasks know no settings

    def renew_with(self, reload: Callable[[], FileIO]) -> None:
        """Have credentials that have expired, or are about to, replaced by those of a FileIO that is loaded anew."""
        self._access.reload = reload

    @property
    def requests_at_a_time(self) -> int:
        """How many requests are made at a time."""
        return request_limit().requests

    def new_input(self, location: str) -> InputFile:
        """Return a file to read."""
        if not self._access.covers(location):
            return self._other(location).new_input(location)
        return _ObjectInput(location, self._access, self._ahead)

    def new_output(self, location: str) -> OutputFile:
        """Return a file to write."""
        if not self._access.covers(location):
            return self._other(location).new_output(location)
        return _ObjectOutput(location, self._access, self._behind)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; one that does not exist is no error on S3."""
        path = location if isinstance(location, str) else location.location
        METADATA_CACHE.discard(path)
        if self._access.covers(path):
            self._access.call("DELETE", path, obstore.delete)
        else:
            self._other(path).delete(location)

    def delete_all(self, locations: Iterable[str]) -> None:
        """Delete those of the files that exist, many with one request where the store can."""
        bulk: dict[int, list[str]] = defaultdict(list)
        for location in locations:
            METADATA_CACHE.discard(location)
            store = self._access.store(location) if self._access.covers(location) else None
            if isinstance(store, (S3Store, AzureStore)):
                bulk[id(store)].append(location)
            else:
                with suppress(FileNotFoundError):
                    self.delete(location)
        for group in bulk.values():
            keys = [path.key for location in group if (path := ObjectPath.parse(location)) is not None]

            def delete(store: ObjectStore, _: str, keys: list[str] = keys) -> None:
                obstore.delete(store, keys)

            with suppress(FileNotFoundError):
                self._access.call("DELETE", group[0], delete)

    def create_new(self, location: str, contents: bytes) -> bool | None:
        """Write a file unless one exists, in one step of the store.

        Returns:
            Whether it was written; None if the file lies on no object store.
        """
        if not self._access.covers(location):
            return None
        with suppress(FileExistsError):
            _put_new(self._access, location, contents)
            return True
        return False

    def list_folder(self, folder: str, *, deep: bool = False) -> list[str] | None:
        """Return the files of a folder, with ``deep`` those of folders in it too; None if the store does not list."""
        if not self._access.covers(f"{folder}/-"):
            return None

        def ask(store: ObjectStore, key: str) -> list[str]:
            prefix = key.removesuffix("-")
            if not deep:
                found = [item["path"] for item in obstore.list_with_delimiter(store, prefix)["objects"]]
            else:
                found = [item["path"] for item in obstore.list(store, prefix).collect()]
            return ["/".join(path.split("/")[key.count("/") :]) for path in found]

        try:
            return [f"{folder}/{path}" for path in self._access.call("LIST", f"{folder}/-", ask)]
        except PermissionError:
            return None

    def read_ahead(self, locations: Iterable[str]) -> None:
        """Request the ends of files that are opened soon, side by side; each is taken by the first who opens it."""
        for location in locations:
            if location not in self._ahead and self._access.covers(location):
                self._ahead[location] = request_limit().pool.submit(_read_tail, self._access, location)

    @contextmanager
    def write_behind(self) -> Iterator[FileIO]:
        """Give access whose small files are written while the next are made; all are there after the block."""
        io = copy(self)
        io._behind = WritesBehind(request_limit().pool)
        try:
            yield io
        finally:
            io._behind.finish()

    def give_up(self) -> None:
        """Repeat no request any more: what is read or written is not wanted."""
        self._access.given_up.set()

    def _other(self, location: str) -> FileIO:
        """Return PyIceberg's own access to a file."""
        scheme, separator, _ = location.partition(":")
        scheme = scheme if separator and "/" not in scheme else ""
        if scheme not in self._others:
            own = {name: value for name, value in self.properties.items() if name != PY_IO_IMPL}
            self._others[scheme] = load_file_io(own, location)
        return self._others[scheme]


#: How PyIceberg finds the class.
IMPLEMENTATION: Final = f"{ObjectStoreFileIO.__module__}.{ObjectStoreFileIO.__qualname__}"


def _read_tail(access: ObjectStoreAccess, location: str) -> _Tail:
    azure = isinstance(access.store(location), AzureStore)  # has no ranges that count from the end
    wanted: Any = (0, TAIL_BYTES) if azure else {"suffix": TAIL_BYTES}

    def read(store: ObjectStore, key: str) -> _Tail:
        found = obstore.get(store, key, options={"range": wanted})
        return _Tail(int(found.meta["size"]), memoryview(found.bytes()))

    try:
        tail = access.call("GET", location, read)
    except StorageError as error:
        if error.empty and not _size(access, location):
            return _Tail(0, memoryview(b""))
        raise
    if azure and tail.size > TAIL_BYTES:
        return _Tail(tail.size, _read_range(access, location, tail.size - TAIL_BYTES, tail.size))
    return tail


def _read_range(access: ObjectStoreAccess, location: str, start: int, end: int) -> memoryview:
    if start >= end:
        return memoryview(b"")
    read = partial(obstore.get_range, start=start, end=end)
    return memoryview(access.call("GET", location, read))


def _read_all(access: ObjectStoreAccess, location: str) -> bytes:
    return bytes(access.call("GET", location, lambda store, key: obstore.get(store, key).bytes()))


def _read_metadata(access: ObjectStoreAccess, location: str) -> bytes:
    if (kept := METADATA_CACHE.get(location)) is not None:
        return kept
    contents = _read_all(access, location)
    METADATA_CACHE.add(location, contents)
    return contents


def _size(access: ObjectStoreAccess, location: str) -> int:
    return int(access.call("HEAD", location, obstore.head)["size"])


def _put_new(access: ObjectStoreAccess, location: str, contents: bytes) -> None:
    """Write an object unless there is one.

    Raises:
        FileExistsError: There is one. It is not this one, whose writing may have lost its answer.
    """
    try:
        access.call("PUT", location, lambda store, key: obstore.put(store, key, contents, mode="create"))
    except FileExistsError:
        if _read_all(access, location) != contents:
            raise


class _ObjectInput(InputFile):
    """An object to read."""

    def __init__(self, location: str, access: ObjectStoreAccess, ahead: dict[str, Future[_Tail]]) -> None:
        super().__init__(location)
        self._access = access
        self._ahead = ahead

    def __len__(self) -> int:
        return _size(self._access, self.location)

    def exists(self) -> bool:
        try:
            len(self)
        except FileNotFoundError:
            return False
        return True

    def open(self, seekable: bool = True) -> InputStream:
        if is_metadata_file(self.location):  # is read whole
            return io.BytesIO(_read_metadata(self._access, self.location))
        if not seekable:
            return io.BytesIO(_read_all(self._access, self.location))
        ahead = self._ahead.pop(self.location, None)
        tail = ahead.result() if ahead is not None else _read_tail(self._access, self.location)
        read = partial(_read_range, self._access, self.location)
        return ObjectInputStream(read, tail.size, tail.bytes)


class _ObjectOutput(OutputFile):
    """An object to write."""

    def __init__(self, location: str, access: ObjectStoreAccess, behind: WritesBehind | None) -> None:
        super().__init__(location)
        self._access = access
        self._behind = behind

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _ObjectInput(self.location, self._access, {})

    def create(self, overwrite: bool = False) -> OutputStream:
        def put(contents: bytes) -> None:
            if overwrite:
                self._access.call("PUT", self.location, lambda store, key: obstore.put(store, key, contents))
            else:
                _put_new(self._access, self.location, contents)
            METADATA_CACHE.add(self.location, contents)

        def upload(pieces: Iterator[bytes]) -> None:
            options: Any = {"use_multipart": True, "chunk_size": PART_BYTES, "max_concurrency": _PARTS}
            put_parts = lambda store, key: obstore.put(store, key, pieces, **options)  # noqa: E731
            self._access.call("PUT parts", self.location, put_parts, again=False)

        return ObjectOutputStream(put if self._behind is None else partial(self._behind.add, put), upload)
