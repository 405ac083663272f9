"""Hive's metastore and Nessie as processes."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def running_hive(java: str, jars: Path, program: Path, folder: Path, port: int) -> Iterator[None]:
    """Run Hive's metastore over Derby, in a folder of its own; ``program`` is the source of its main class."""
    command = [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program), str(folder), str(port)]
    with _running(command, folder, port):
        yield


@contextmanager
def running_nessie(
    java: str, jars: Path, folder: Path, port: int, store: str, warehouse: str, keys: tuple[str, str]
) -> Iterator[None]:
    """Run Nessie, which keeps all in memory, with tables on an S3 server; it manages itself at the next port."""
    (jar,) = jars.glob("nessie-quarkus-*-runner.jar")
    service = "nessie.catalog.service.s3.default-options"
    properties = {
        "quarkus.http.host": "127.0.0.1",
        "quarkus.http.port": port,
        "quarkus.management.port": port + 1,
        "nessie.version.store.type": "IN_MEMORY",
        "nessie.catalog.default-warehouse": "warehouse",
        "nessie.catalog.warehouses.warehouse.location": warehouse,
        f"{service}.region": "us-east-1",
        f"{service}.endpoint": store,
        f"{service}.path-style-access": "true",
        f"{service}.access-key": "urn:nessie-secret:quarkus:keys",
        "keys.name": keys[0],
        "keys.secret": keys[1],
    }
    settings = [f"-D{name}={value}" for name, value in properties.items()]
    with _running([java, "-Xmx400m", "-XX:TieredStopAtLevel=1", *settings, "-jar", str(jar)], folder, port):
        yield


@contextmanager
def _running(command: Sequence[str], folder: Path, port: int) -> Iterator[None]:
    """Run a server until the end of the block; it takes connections when the block begins."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 120
            while True:
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                assert process.poll() is None, (folder / "log").read_text()[-4000:]
                assert time.monotonic() < deadline, (folder / "log").read_text()[-4000:]
                time.sleep(0.2)
            yield
        finally:
            process.kill()
            process.wait()
