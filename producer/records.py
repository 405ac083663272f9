"""Small JSON records on storage, by name: written whole, read whole, claimed by whoever comes first."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar
from urllib.parse import quote

from pydantic import ValidationError
from pyiceberg.io import FileIO

from producer.messages import Value
from producer.staging import Claim

V = TypeVar("V", bound=Value)
C = TypeVar("C", bound=Claim)
A = TypeVar("A")
B = TypeVar("B")

_PROBES: Final = 16
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
        with self.io.new_output(self._path(name)).create(overwrite=True) as stream:
            stream.write(value.model_dump_json().encode())

    def read(self, name: str, kind: type[V]) -> V | None:
        """A record; None when there is none, or not all of it.

        Raises:
            ValidationError: it is of another make.
        """
        try:
            with self.io.new_input(self._path(name)).open(seekable=False) as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            if error.errors()[0]["type"] == "json_invalid":
                return None  # disks show a file before all of it is written, or when its writer died; stores do not
            raise

    def exists(self, name: str) -> bool:
        """Whether there is a record, whole or not."""
        return self.io.new_input(self._path(name)).exists()

    def delete(self, name: str) -> None:
        """Delete a record that may be there."""
        _delete_quietly(self.io, self._path(name))

    def claim(self, name: str, value: C) -> bool:
        """Write a record under a name that nobody has; False when somebody has it, or is as quick."""
        if self._read_whole(name, type(value)) is not None:
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

    def appended(self, name: str, kind: type[V]) -> list[V]:
        """All that was appended under a name and is whole: whoever wrote one that is not has died over it."""
        found = (self._read_whole(f"{name}-{number}", kind) for number in range(self.count(name)))
        return [value for value in found if value is not None]

    def _read_whole(self, name: str, kind: type[V]) -> V | None:
        """Look again when a record is there and is not whole: it is being written, or its writer died while it was."""
        for _ in range(_LOOKS):
            if (value := self.read(name, kind)) is not None or not self.exists(name):
                return value
            time.sleep(_PAUSE)
        return None

    def _path(self, name: str) -> str:
        return f"{self.base}/{_segment(name)}.json"


def _segment(name: str) -> str:
    """A name that leads nowhere: numbers and tokens in it come from messages and from other records."""
    return quote(name, safe="")


def parallel(function: Callable[[A], B], values: Iterable[A]) -> list[B]:
    """``function`` of each value, in order; many at a time, since storage answers late but in parallel."""
    with ThreadPoolExecutor(_PROBES) as pool:
        return list(pool.map(function, values))


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files, of which some may never have been written."""
    parallel(partial(_delete_quietly, io), paths)


def _delete_quietly(io: FileIO, path: str) -> None:
    with suppress(FileNotFoundError):
        io.delete(path)
