"""Small JSON records on storage: written and read whole, by name, and claimed by the first who writes one."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar
from urllib.parse import quote

from pyiceberg.io import FileIO

from producer.common.errors import Corrupt
from producer.model.codec import decode, encode
from producer.model.job import Value
from producer.model.staged import Claim
from producer.storage.files import create_file, delete_if_exists, list_folder, map_parallel, write_file

V = TypeVar("V", bound=Value)
C = TypeVar("C", bound=Claim)

_READS: Final = 5
_PAUSE: Final = 0.1  # seconds between two of them
#: Records that are read with a listing, at most: they are held in memory.
_READ_AT_ONCE: Final = 256


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one folder; nothing is cached."""

    io: FileIO
    #: The folder, without a slash at its end.
    base: str
    #: The paths that exist, where the folder was listed: what is not among them is not asked for.
    listed: frozenset[str] | None = None
    #: Whether those of folders in it are among them.
    deep: bool = False
    #: Records that were read when they were listed.
    contents: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    def snapshot(self) -> Self:
        """Return the records as their folder is now: on object stores one request tells which of them exist."""
        found = list_folder(self.io, self.base)
        return self if found is None else type(self)(self.io, self.base, frozenset(found))

    def deep_snapshot(self, kinds: tuple[str, ...]) -> Self:
        """Return the records as this folder and those in it are now.

        On object stores one request lists them. Those whose names begin with one of ``kinds`` are read at once, if
        they are not too many.
        """
        found = list_folder(self.io, self.base, deep=True)
        if found is None:
            return self
        wanted = [path for path in found if path.rpartition("/")[2].startswith(kinds)]
        read = zip(wanted, map_parallel(self._contents, wanted), strict=True) if len(wanted) <= _READ_AT_ONCE else ()
        contents = {path: text for path, text in read if text is not None}
        return type(self)(self.io, self.base, frozenset(found), True, contents)

    def subfolder(self, name: str) -> Self:
        """Return the records of a folder in this one."""
        base = f"{self.base}/{_segment(name)}"
        return replace(self, base=base) if self.deep else type(self)(self.io, base)

    def write(self, name: str, value: Value) -> None:
        """Write a record, in place of one that exists."""
        write_file(self.io, self.path(name), encode(value).encode())

    def read(self, name: str, kind: type[V]) -> V | None:
        """Return a record, or None if it is missing or unreadable.

        Raises:
            Newer: A later version wrote it.
        """
        with suppress(Corrupt):
            return self._read_once(name, kind)
        return None

    def load(self, name: str, kind: type[V]) -> V | None:
        """Return a record, or None if it is missing. An unreadable one must not count as one that was never written.

        It is read again for half a second: disks show a file before all of it is written.

        Raises:
            Corrupt: The record is unreadable; the sentence names it.
            Newer: A later version wrote it.
        """
        for _ in range(_READS - 1):
            with suppress(Corrupt):
                return self._read_once(name, kind)
            time.sleep(_PAUSE)
        return self._read_once(name, kind)

    def exists(self, name: str) -> bool:
        """Return whether a record exists, readable or not."""
        path = self.path(name)
        return self.io.new_input(path).exists() if self.listed is None else path in self.listed

    def delete(self, name: str) -> None:
        """Delete a record if it exists."""
        delete_if_exists(self.io, self.path(name))

    def claim(self, name: str, value: C) -> bool:
        """Write a record unless one of its name exists; return False if another process has the name.

        One step where the storage has it; elsewhere two processes that claim at the same time may both lose.
        """
        contents = encode(value).encode()
        if create_file(self.io, self.path(name), contents):
            return True
        now = type(self)(self.io, self.base)
        with suppress(Corrupt):  # its writer died while it wrote
            if now.load(name, type(value)) is not None:
                return False
        self.write(name, value)
        written = now.read(name, type(value))
        return written is not None and written.token == value.token

    def append(self, name: str, value: C) -> int:
        """Claim the first free number of a name, and return it."""
        return next(number for number in itertools.count() if self.claim(f"{name}-{number}", value))

    def count(self, name: str) -> int:
        """Return how many numbers of a name are in use."""
        return next(number for number in itertools.count() if not self.exists(f"{name}-{number}"))

    def read_all(self, name: str, kind: type[V]) -> tuple[list[V], list[str]]:
        """Return the readable records of all numbers of a name, and the errors of the others."""
        found: list[V] = []
        errors: list[str] = []
        for number in itertools.count():
            try:
                value = self.load(f"{name}-{number}", kind)
            except Corrupt as error:
                errors.append(str(error))
                continue
            if value is None:
                break
            found.append(value)
        return found, errors

    def _read_once(self, name: str, kind: type[V]) -> V | None:
        path = self.path(name)
        if self.listed is not None and path not in self.listed:
            return None
        text = self.contents[path] if path in self.contents else self._contents(path)
        return decode(text, kind, path) if text is not None else None

    def _contents(self, path: str) -> bytes | None:
        try:
            with self.io.new_input(path).open(seekable=False) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def path(self, name: str) -> str:
        """Return the path of a record."""
        return f"{self.base}/{_segment(name)}.json"


def _segment(name: str) -> str:
    """Return a name that leads to no other folder: numbers and tokens in it come from messages and other records."""
    return quote(name, safe="")
