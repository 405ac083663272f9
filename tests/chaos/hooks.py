"""Storage and a catalog in which faults happen: the one place where steps of a job are told to whoever breaks it.

PyIceberg's configuration names the storage, which brings the catalog along, so what runs is the product as it is: every
step that has a name leaves something on storage or in the catalog, and is known by that.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from pyiceberg.catalog import AVAILABLE_CATALOGS, CatalogType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier

from tests.chaos import victims
from tests.chaos.faults import Arsenal, Effect, Step

#: Names the folder of faults; without it nothing ever happens.
FOLDER: Final = "CHAOS_FOLDER"
#: Seconds that something slow takes.
_SECONDS: Final = {Effect.HESITANT: 0.5, Effect.SLOW: 2.0, Effect.VERY_SLOW: 60.0}

_RECORDS: Final = {"plan": Step.PLAN_WRITTEN, "attempt": Step.UNIT_TAKEN, "staged": Step.RECORD_STAGED}
_ERRORS: Final[dict[Effect, Callable[[str], Exception]]] = {
    Effect.IO_ERROR: lambda what: OSError(errno.EIO, "Input/output error", what),
    Effect.DISK_FULL: lambda what: OSError(errno.ENOSPC, "No space left on device", what),
    Effect.DENIED: lambda what: PermissionError(errno.EACCES, "Permission denied", what),
    Effect.TRUNCATED: lambda what: OSError(errno.EIO, "the connection broke in the middle of a write", what),
    Effect.VANISHED: lambda what: FileNotFoundError(errno.ENOENT, "No such file or directory", what),
    Effect.REFUSED: lambda what: ServiceUnavailableError(f"the catalog is away: {what}"),
    Effect.NO_ANSWER_BEFORE: lambda what: CommitStateUnknownException("the connection was closed"),
    Effect.NO_ANSWER_AFTER: lambda what: CommitStateUnknownException("the connection was closed"),
    Effect.BEATEN: lambda what: CommitFailedException("the branch has moved"),
}


def reached(step: Step, what: str) -> None:
    """Say that this process is at a step; it may not survive it.

    Raises:
        OSError, ServiceUnavailableError, CommitFailedException, CommitStateUnknownException: that is what happens.
    """
    if (folder := os.environ.get(FOLDER)) is None:
        return
    for fault in Arsenal(Path(folder)).spring(step, what):
        if fault.effect in _SECONDS:
            time.sleep(_SECONDS[fault.effect])
        elif fault.effect in _ERRORS:
            raise _ERRORS[fault.effect](what)
        else:
            victims.kill(fault.effect, Path(folder) / "leaders")


class FaultyFileIO(PyArrowFileIO):
    """The usual access to files, which may fail."""

    def new_input(self, location: str) -> Any:
        return _File(super().new_input(location))

    def new_output(self, location: str) -> Any:
        return _File(super().new_output(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        if "/current-" in path:
            reached(Step.BEFORE_REPORT, path)  # the job's last record
        reached(Step.DELETED, path)
        super().delete(path)


class _File(InputFile, OutputFile):
    """A file, looked at, read and written through the usual one."""

    def __init__(self, file: PyArrowFile) -> None:
        super().__init__(file.location)
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return self._file.exists()

    def to_input_file(self) -> Any:
        return self

    def open(self, seekable: bool = True) -> InputStream:
        reached(_reading(self.location), self.location)
        return self._file.open(seekable)

    def create(self, overwrite: bool = False) -> Any:
        if "/_icefleet/" in self.location:
            reached(Step.RECORD_WRITTEN, self.location)
        return _Stream(self._file.create(overwrite), self.location)


class _Stream(OutputStream):
    """A file that is being written; half of it is there when something happens in the middle."""

    def __init__(self, stream: OutputStream, path: str) -> None:
        self._stream = stream
        self._path = path
        self._is_data = "/_icefleet/" not in path and path.endswith((".parquet", ".puffin"))
        self._halved = not self._is_data
        self._end = b""
        self.closed = False

    def write(self, data: Any) -> int:
        content = memoryview(data)
        self._end = bytes(content[-4096:])
        if not self._halved and len(content) > 8:  # more than a magic number
            self._halved = True
            half = len(content) // 2
            self._stream.write(bytes(content[:half]))
            self.flush()
            reached(Step.FILE_HALF_WRITTEN, self._path)
            self._stream.write(bytes(content[half:]))
        else:
            self._stream.write(bytes(content))
        return len(content)

    def flush(self) -> None:
        getattr(self._stream, "flush", lambda: None)()

    def tell(self) -> int:
        return int(self._stream.tell())

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._stream.close()
        if (step := self._step()) is not None:
            reached(step, self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _step(self) -> Step | None:
        """What it means that the file is there."""
        name = self._path.rpartition("/")[2]
        if "/_icefleet/" in self._path:
            kind = name.removesuffix(".json").partition("-")[0]
            if kind == "commit":  # noted once when it begins, and once it knows what it is to commit
                return Step.COMMIT_VALIDATED if b'"snapshots":{"' in self._end else None
            return _RECORDS.get(kind)
        if name.startswith("snap-"):
            return Step.MANIFESTS_WRITTEN  # their list comes last
        return Step.FILE_WRITTEN if self._is_data else None


def _reading(path: str) -> Step:
    if "/_icefleet/" in path:
        return Step.RECORD_READ
    return Step.MANIFEST_READ if path.endswith(".avro") else Step.FILE_READ


class FaultyCatalog(SqlCatalog):
    """The usual catalog, which may fail."""

    def load_table(self, identifier: str | Identifier) -> Table:
        reached(Step.TABLE_LOADED, str(identifier))
        return super().load_table(identifier)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        reached(Step.BEFORE_SWAP, str(table.name()))
        done = super().commit_table(table, requirements, updates)
        reached(Step.AFTER_SWAP, str(table.name()))
        return done


if FOLDER in os.environ:
    # PyIceberg takes a catalog's class from its caller alone. A process gets this one from its second catalog on;
    # Icefleet opens one for each step.
    AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: FaultyCatalog(name, **properties)
