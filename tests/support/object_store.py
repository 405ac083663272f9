"""An S3 server as a process, with a proxy before it that counts requests and lets some of them fail."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from pyarrow.fs import FileSelector, FileType, S3FileSystem

from tests.support.repository import REPOSITORY

BUCKET: Final = "lake"
#: Any do: this server checks none.
KEYS: Final = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}


@dataclass(frozen=True)
class ObjectStore:
    """A running server: ``endpoint`` is that of the proxy, ``direct`` the server's own."""

    endpoint: str
    direct: str

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a catalog by which PyIceberg reaches it."""
        return {"s3.endpoint": self.endpoint, **KEYS}

    def counts(self) -> dict[str, int]:
        """Return how many requests of each kind came since the last time."""
        with urllib.request.urlopen(f"{self.endpoint}/-/counts") as answer:
            found: dict[str, int] = json.load(answer)
        return found

    @contextmanager
    def faults(self, only: str = "", **shares: float) -> Iterator[None]:
        """Let shares of the requests fail; see :class:`tests.support.slow_proxy.Proxy`."""
        self._set_faults({"only": only, **shares})
        try:
            yield
        finally:
            self._set_faults({})

    def keys(self, folder: str) -> list[str]:
        """Return the keys of all objects below a folder of the bucket, markers of folders too."""
        found = self._filesystem.get_file_info(FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True))
        return [info.path.removeprefix(f"{BUCKET}/") for info in found if info.type == FileType.File]

    def read(self, key: str) -> bytes:
        """Return the contents of an object of the bucket."""
        with self._filesystem.open_input_stream(f"{BUCKET}/{key}") as stream:
            return bytes(stream.read())

    def folders(self, folder: str) -> list[str]:
        """Return the folders below a folder."""
        found = self._filesystem.get_file_info(FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True))
        return [info.path.removeprefix(f"{BUCKET}/") for info in found if info.type == FileType.Directory]

    def _set_faults(self, faults: dict[str, Any]) -> None:
        body = json.dumps(faults).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/-/faults", body, method="PUT")).close()

    @property
    def _filesystem(self) -> S3FileSystem:
        return S3FileSystem(
            access_key="key", secret_key="secret", region="us-east-1", endpoint_override=self.direct, scheme="http"
        )


@contextmanager
def running_store(port: int, server_port: int, latency: float = 0.0) -> Iterator[ObjectStore]:
    """Run a server with an empty bucket."""
    with (
        _running("moto.server", "-p", str(server_port)),
        _running(
            "tests.support.slow_proxy",
            "--backend",
            f"127.0.0.1:{server_port}",
            "--port",
            str(port),
            "--latency",
            str(latency),
        ),
    ):
        store = ObjectStore(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{server_port}")
        deadline = time.monotonic() + 60
        while True:
            with suppress(OSError):
                bucket = urllib.request.Request(f"{store.endpoint}/{BUCKET}", method="PUT")
                urllib.request.urlopen(bucket).close()
                break
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.1)
        yield store


@contextmanager
def _running(module: str, *arguments: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()
