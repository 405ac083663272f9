"""Processes that die at any moment that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO


class Killed(BaseException):
    """The process is gone: nothing that would follow happens."""


class Trap:
    """Kills the process before, or in the middle of, the change number ``at`` to storage.

    Attributes:
        at: None lets everything pass.
        torn: Whether the file is there by then, and empty.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: int | None = None
        self.torn = False
        self.seen = 0
        self.sprung = False
        create, delete = PyArrowFile.create, PyArrowFileIO.delete

        def trapped_create(file: PyArrowFile, overwrite: bool = False) -> OutputStream:
            self._step(lambda: create(file, overwrite).close())
            return create(file, overwrite)

        def trapped_delete(io: PyArrowFileIO, location: Any) -> None:
            self._step(lambda: None)
            delete(io, location)

        monkeypatch.setattr(PyArrowFile, "create", trapped_create)
        monkeypatch.setattr(PyArrowFileIO, "delete", trapped_delete)

    def arm(self, at: int, *, torn: bool) -> None:
        """Set the trap."""
        self.at, self.torn, self.seen, self.sprung = at, torn, 0, False

    def revive(self) -> None:
        """A new process takes over."""
        self.at = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let changes of other writers pass, uncounted."""
        self.at, at = None, self.at
        yield
        self.at = at

    def _step(self, tear: Callable[[], None]) -> None:
        if self.at is None:
            return
        if self.seen == self.at and self.torn and not self.sprung:
            tear()
        if self.seen >= self.at:
            self.sprung = True
            raise Killed
        self.seen += 1
