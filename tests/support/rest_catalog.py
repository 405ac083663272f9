"""Iceberg's own server of a REST catalog as a process, over SQLite, with a proxy before it that lets requests fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.repository import REPOSITORY

_SERVER = "org.apache.iceberg.rest.RESTCatalogServer"


@dataclass(frozen=True)
class RestCatalogServer:
    """A running server; ``uri`` is the address of the proxy."""

    uri: str
    process: subprocess.Popen[bytes]

    @contextmanager
    def faults(self, only: str, times: int = 1, **shares: float) -> Iterator[None]:
        """Let requests fail; see :class:`tests.support.slow_proxy.Proxy`."""
        self._set_faults({"only": only, "times": times, **shares})
        try:
            yield
        finally:
            self._set_faults({})

    def counts(self) -> dict[str, int]:
        """Return how many requests and faults of each kind there were since the last time."""
        with urllib.request.urlopen(f"{self.uri}/-/counts") as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def _set_faults(self, faults: dict[str, Any]) -> None:
        body = json.dumps(faults).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.uri}/-/faults", body, method="PUT")).close()


@contextmanager
def running_rest_catalog(java: str, jars: Path, folder: Path, port: int) -> Iterator[RestCatalogServer]:
    """Run a server whose tables lie in a folder; the proxy is at ``port``, the server at the next one."""
    environment = {
        **os.environ,
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "CATALOG_REST_PORT": str(port + 1),
    }
    proxy = [
        sys.executable,
        "-m",
        "tests.support.slow_proxy",
        "--backend",
        f"127.0.0.1:{port + 1}",
        "--port",
        str(port),
    ]
    with ExitStack() as stack, (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [java, "-Xmx256m", "-cp", f"{jars}/*", _SERVER], env=environment, stdout=log, stderr=log
        )
        stack.callback(server.wait)
        stack.callback(server.kill)
        before = subprocess.Popen(proxy, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
        stack.callback(before.wait)
        stack.callback(before.kill)
        deadline = time.monotonic() + 60
        uri = f"http://127.0.0.1:{port}"
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{uri}/v1/config").close()
                break
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.2)
        yield RestCatalogServer(uri, server)
