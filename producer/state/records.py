"""Small JSON records on storage, by name: written whole, read whole, claimed by whoever comes first."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self, TypeVar
from urllib.parse import quote

from pyiceberg.io import FileIO

from producer.common.errors import Corrupt
from producer.common.storage import delete_if_exists, write_file
from producer.model.codec import decode, encode
from producer.model.job import Value
from producer.model.staged import Claim

V = TypeVar("V", bound=Value)
C = TypeVar("C", bound=Claim)

_LOOKS: Final = 5
_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one folder; nothing is kept in memory.

    Args:
        io: The table's file access.
        base: The folder, without a slash at its end.
    """

    io: FileIO
    base: str

    def below(self, folder: str) -> Self:
        """Those of a folder in this one."""
        return type(self)(self.io, f"{self.base}/{_segment(folder)}")

    def write(self, name: str, value: Value) -> None:
        """Write a record, in place of one that is there."""
        write_file(self.io, self._path(name), encode(value).encode())

    def read(self, name: str, kind: type[V]) -> V | None:
        """A record; None when there is none, or none that can be read: as good as not written.

        Raises:
            Newer: a later version has written it.
        """
        with suppress(Corrupt):
            return self._look(name, kind)
        return None

    def load(self, name: str, kind: type[V]) -> V | None:
        """A record that must not be taken for one that was never written; None when there is none.

        One that cannot be read is looked at again for half a second: disks show a file before all of it is written.

        Raises:
            Corrupt: it is there and cannot be read; the sentence names it.
            Newer: a later version has written it.
        """
        for _ in range(_LOOKS - 1):
            with suppress(Corrupt):
                return self._look(name, kind)
            time.sleep(_PAUSE)
        return self._look(name, kind)

    def exists(self, name: str) -> bool:
        """Whether there is a record, whole or not."""
        return self.io.new_input(self._path(name)).exists()

    def delete(self, name: str) -> None:
        """Delete a record that may be there."""
        delete_if_exists(self.io, self._path(name))

    def claim(self, name: str, value: C) -> bool:
        """Write a record under a name that nobody has; False when somebody has it, or is as quick."""
        with suppress(Corrupt):  # then whoever wrote it has died over it
            if self.load(name, type(value)) is not None:
                return False
        self.write(name, value)
        written = self.read(name, type(value))
        return written is not None and written.token == value.token

    def append(self, name: str, value: C) -> int:
        """Claim the first number that is free under a name; the number."""
        return next(number for number in itertools.count() if self.claim(f"{name}-{number}", value))

    def count(self, name: str) -> int:
        """How many numbers are taken under a name."""
        return next(number for number in itertools.count() if not self.exists(f"{name}-{number}"))

    def survey(self, name: str, kind: type[V]) -> tuple[list[V], list[str]]:
        """All that was appended under a name, and what is wrong with those that cannot be read."""
        found: list[V] = []
        broken: list[str] = []
        for number in itertools.count():
            try:
                value = self.load(f"{name}-{number}", kind)
            except Corrupt as error:
                broken.append(str(error))
                continue
            if value is None:
                return found, broken
            found.append(value)
        raise AssertionError

    def _look(self, name: str, kind: type[V]) -> V | None:
        path = self._path(name)
        try:
            with self.io.new_input(path).open(seekable=False) as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        return decode(text, kind, path)

    def _path(self, name: str) -> str:
        return f"{self.base}/{_segment(name)}.json"


def _segment(name: str) -> str:
    """A name that leads nowhere: numbers and tokens in it come from messages and from other records."""
    return quote(name, safe="")
