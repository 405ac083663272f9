"""Where tables lie: on the local disk, or on an object store whose requests take long."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from bench.contestant import ROOT
from bench.peers.environment import Absent
from bench.usage import cpu_seconds

#: Added to the first byte of each answer, and the most that a connection carries.
LATENCY_SECONDS: Final = 0.05
BYTES_PER_SECOND: Final = 50_000_000
#: Behind the names of contestants whose tables are on the store.
SLOW: Final = f", {LATENCY_SECONDS * 1000:.0f} ms"
_BUCKET: Final = "bench"
#: The names are the same for PyIceberg and Iceberg's other implementations.
_ACCESS: Final = {
    "s3.access-key-id": "bench",
    "s3.secret-access-key": "bench-secret",
    "s3.region": "us-east-1",
    "s3.path-style-access": "true",
}
#: versitygw refuses how PyArrow completes an upload.
_FILE_IO: Final = "producer.storage.object_store_io.ObjectStoreFileIO"
_START: Final = 30.0
_WAREHOUSE: Final = "warehouse"
_SQLITE: Final = "sqlite:///"


class Where(StrEnum):
    """The kinds of places."""

    DISK = "disk"
    #: An S3 server behind a proxy that adds latency and limits connections.
    STORE = "store"


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of this machine, and how it is reached as a storage."""

    folder: Path
    #: The folder in paths of tables.
    uri: str
    #: Properties of a catalog for those who make and check tables, and for contestants.
    properties: Mapping[str, str] = field(default_factory=dict)
    contestant_properties: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def disk(cls, folder: Path) -> Place:
        """Return a folder on the local disk."""
        return cls(folder.absolute(), f"file://{folder.absolute()}")

    def catalog(self, folder: Path, name: str) -> SqlCatalog:
        """Return a catalog whose file and warehouse are in a folder of this place."""
        folder.mkdir(parents=True, exist_ok=True)
        warehouse = f"{self.uri}/{folder.relative_to(self.folder)}/{_WAREHOUSE}"
        return SqlCatalog(name, uri=f"{_SQLITE}{folder}/catalog.db", warehouse=warehouse, **self.properties)


def local_path(catalog: Catalog, location: str) -> Path:
    """Return where a file in a catalog's warehouse, which is beside the catalog's own file, lies on this machine."""
    folder = Path(catalog.properties["uri"].removeprefix(_SQLITE)).parent / _WAREHOUSE
    return folder / location.removeprefix(catalog.properties["warehouse"]).lstrip("/")


@dataclass
class Traffic:
    """What a contestant asked of an object store."""

    #: By kind.
    requests: dict[str, int] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    #: Of the server and the proxy, which share the machine with the contestant.
    cpu_seconds: float = 0.0


class SlowStore:
    """An S3 server that keeps its objects as files of a folder, and the proxy before it.

    Raises:
        Absent: There is no server.
    """

    def __init__(self, folder: Path) -> None:
        server = find_server()
        if server is None:
            raise Absent("there is no versitygw: run scripts/bootstrap stores")
        (folder / _BUCKET).mkdir(parents=True, exist_ok=True)
        port = _free_port()
        keys = {"ROOT_ACCESS_KEY": _ACCESS["s3.access-key-id"], "ROOT_SECRET_KEY": _ACCESS["s3.secret-access-key"]}
        command = [server, "--port", f"127.0.0.1:{port}", "--keep-alive", "--quiet", "posix", str(folder)]
        log = (folder.parent / "logs/store.log").absolute()
        log.parent.mkdir(parents=True, exist_ok=True)
        # In sessions of their own: Ctrl-C ends contestants first.
        with log.open("ab") as output:
            self._server = subprocess.Popen(
                command, env={**os.environ, **keys}, stdout=output, stderr=output, start_new_session=True
            )
        proxy = [sys.executable, "-m", "tests.support.slow_proxy", "--backend", f"127.0.0.1:{port}"]
        proxy += ["--latency", str(LATENCY_SECONDS), "--rate", str(BYTES_PER_SECOND)]
        self._proxy = subprocess.Popen(proxy, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True)
        assert self._proxy.stdout is not None
        self._endpoint = self._proxy.stdout.readline().strip()
        _wait_for(port)
        self.place = Place(
            folder.absolute() / _BUCKET,
            f"s3://{_BUCKET}",
            {"s3.endpoint": f"http://127.0.0.1:{port}", "py-io-impl": _FILE_IO, **_ACCESS},
            {"s3.endpoint": self._endpoint, **_ACCESS},
        )

    @contextmanager
    def traffic(self) -> Iterator[Traffic]:
        """Count what goes through the proxy during the block; the figures are there after it."""
        self._counts()
        before = self._cpu_seconds()
        seen = Traffic()
        yield seen
        counts = self._counts()
        seen.bytes_down, seen.bytes_up = counts.pop("bytes down", 0), counts.pop("bytes up", 0)
        seen.requests = dict(counts)
        seen.cpu_seconds = self._cpu_seconds() - before

    def close(self) -> None:
        """End both processes."""
        for process in (self._proxy, self._server):
            process.kill()
            process.wait()

    def _counts(self) -> Counter[str]:
        with urllib.request.urlopen(f"{self._endpoint}/-/counts") as answer:
            return Counter(json.load(answer))

    def _cpu_seconds(self) -> float:
        return cpu_seconds(self._server.pid) + cpu_seconds(self._proxy.pid)


class Places:
    """The places of a bench; the object store is started when it is first needed.

    Args:
        data: The folder that holds all that is made for runs.
    """

    def __init__(self, data: Path) -> None:
        self._folder = data.absolute() / "store"
        self._disk = Place.disk(data)
        self._store: SlowStore | None = None

    def get(self, where: Where) -> Place:
        """Return a place.

        Raises:
            Absent: It cannot be had here.
        """
        return self._disk if where is Where.DISK else self._started().place

    def traffic(self, where: Where) -> AbstractContextManager[Traffic | None]:
        """Count the requests to a place during the block; the figures are there after it. None for the disk."""
        return nullcontext() if where is Where.DISK else self._started().traffic()

    def close(self) -> None:
        """End what was started."""
        if self._store is not None:
            self._store.close()

    def _started(self) -> SlowStore:
        if self._store is None:
            self._store = SlowStore(self._folder)
        return self._store


def find_server() -> str | None:
    """Return the path of versitygw, where scripts/bootstrap puts it or on PATH, or None."""
    return shutil.which("versitygw", path=f"{ROOT / '.stores/bin'}{os.pathsep}{os.environ['PATH']}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + _START
    while True:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        if time.monotonic() > deadline:
            raise Absent(f"versitygw did not start in {_START:.0f} s: its log is logs/store.log")
        time.sleep(0.05)
