"""Object stores as processes: versitygw (a strict S3), moto (S3), Azurite (Azure) and fake-gcs-server (GCS).

`scripts/bootstrap stores` installs them into `.stores/`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import boto3
import obstore

from producer.storage.stores import ObjectPath, open_store
from tests.support.repository import REPOSITORY

INSTALLED: Final = REPOSITORY / ".stores"
#: The buckets, or containers, of every store.
BUCKETS: Final = ("lake", "annex")
KEY, SECRET = "access-key-of-root", "secret-of-root"
_ACCOUNT: Final = "devstoreaccount1"
#: The key of every Azurite.
_ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Store:
    """A store at a port of this machine."""

    name: str
    port: int
    #: The file of its certificate, if it speaks TLS.
    certificate: str | None = None

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http{'s' if self.certificate else ''}://127.0.0.1:{self.port}"

    @property
    def properties(self) -> dict[str, str]:
        """The properties of a catalog by which PyIceberg's access and Icefleet's reach it."""
        if self.name == "azurite":
            host = f"127.0.0.1:{self.port}"
            endpoints = {
                f"adls.{kind}-storage-{part}": value
                for kind in ("blob", "dfs")
                for part, value in (("authority", host), ("scheme", "http"))
            }
            return {"adls.account-name": _ACCOUNT, "adls.account-key": _ACCOUNT_KEY, **endpoints}
        if self.name == "fake-gcs":
            expires = str(int(time.time() + 86_400) * 1000)
            return {
                "gcs.project-id": "p",
                "gcs.service.host": self.address,
                "gcs.oauth2.token": "anon",
                "gcs.oauth2.token-expires-at": expires,
            }
        return {
            "s3.endpoint": self.address,
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": "us-east-1",
        }

    @property
    def fsspec_properties(self) -> dict[str, str]:
        """The same for FsspecFileIO: its Azure client has no property for an emulator's address."""
        if self.name != "azurite":
            return self.properties
        parts = {
            "DefaultEndpointsProtocol": "http",
            "AccountName": _ACCOUNT,
            "AccountKey": _ACCOUNT_KEY,
            "BlobEndpoint": f"{self.address}/{_ACCOUNT}",
        }
        return {"adls.connection-string": ";".join(f"{name}={value}" for name, value in parts.items())}

    def location(self, key: str, bucket: str = BUCKETS[0]) -> str:
        """Return the path of a key."""
        if self.name == "azurite":
            return f"abfss://{bucket}@{_ACCOUNT}.dfs.core.windows.net/{key}"
        return f"{'gs' if self.name == 'fake-gcs' else 's3'}://{bucket}/{key}"

    def keys(self, folder: str, bucket: str = BUCKETS[0]) -> set[str]:
        """Return the keys of all objects below a folder."""
        path = ObjectPath.parse(self.location(f"{folder}/-", bucket))
        assert path is not None
        store = open_store(path, self.properties)
        assert store is not None
        return {item["path"] for items in obstore.list(store, folder) for item in items}

    @property
    def client(self) -> Any:
        """A client of S3, for what no file access does."""
        return boto3.client(
            "s3",
            endpoint_url=self.address,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            verify=self.certificate,
        )


def missing(name: str) -> str | None:
    """Return why a store cannot be run here, or None if it can."""
    program = _PROGRAMS.get(name)
    if program is None or program.exists():
        return None
    return f"{program.name} is not installed: run `scripts/bootstrap stores`"


@contextmanager
def running(name: str, folder: Path, port: int) -> Iterator[Store]:
    """Run a store with empty buckets; its files lie in a folder, if it has some."""
    store = Store(name, port)
    with _process(*_COMMANDS[name](folder, port)):
        _wait_for(lambda: _create_buckets(store))
        yield store


@contextmanager
def running_with_tls(folder: Path, port: int, key: str, certificate: str) -> Iterator[Store]:
    """Run versitygw with a certificate."""
    store = Store("versitygw", port, certificate)
    with _process(*_versitygw(folder, port, "--key", key, "--cert", certificate)):
        _wait_for(lambda: _create_buckets(store))
        yield store


def add_user(store: Store, name: str, secret: str) -> None:
    """Add a user to versitygw, who may do nothing without a policy of a bucket."""
    access = ["--access", KEY, "--secret", SECRET, "--endpoint-url", store.address]
    user = ["create-user", "--access", name, "--secret", secret, "--role", "user"]
    subprocess.run([_PROGRAMS["versitygw"], "admin", *access, *user], check=True, capture_output=True)


def _versitygw(folder: Path, port: int, *options: str) -> list[str]:
    files, users = folder / "files", folder / "users"
    for made in (files, users):
        made.mkdir(parents=True, exist_ok=True)
    root = ["--access", KEY, "--secret", SECRET, "--iam-dir", str(users), "--iam-cache-disable"]
    place = ["--quiet", "--port", f"127.0.0.1:{port}", *root, *options, "posix", str(files)]
    return [str(_PROGRAMS["versitygw"]), *place]


def _moto(folder: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "moto.server", "-p", str(port)]


def _azurite(folder: Path, port: int) -> list[str]:
    options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    return [str(_PROGRAMS["azurite"]), "--blobHost", "127.0.0.1", "--blobPort", str(port), *options]


def _fake_gcs(folder: Path, port: int) -> list[str]:
    """The server at the next port, behind what it lacks of GCS's XML interface."""
    return [sys.executable, "-m", "tests.support.gcs_xml", str(_PROGRAMS["fake-gcs"]), str(port)]


_PROGRAMS: Final = {
    "versitygw": INSTALLED / "bin/versitygw",
    "azurite": INSTALLED / "node_modules/.bin/azurite-blob",
    "fake-gcs": INSTALLED / "bin/fake-gcs-server",
}
_COMMANDS: Final[Mapping[str, Callable[[Path, int], list[str]]]] = {
    "versitygw": _versitygw,
    "moto": _moto,
    "azurite": _azurite,
    "fake-gcs": _fake_gcs,
}
STORES: Final = tuple(_COMMANDS)


def _create_buckets(store: Store) -> None:
    for bucket in BUCKETS:
        if store.name == "azurite":
            _create_container(store, bucket)
        elif store.name == "fake-gcs":
            body = json.dumps({"name": bucket}).encode()
            headers = {"content-type": "application/json"}
            urlopen(Request(f"{store.address}/storage/v1/b?project=p", body, headers), timeout=5).close()
        else:
            store.client.create_bucket(Bucket=bucket)


def _create_container(store: Store, name: str) -> None:
    """Create a container by a signed request, since obstore creates none."""
    date, version = formatdate(usegmt=True), "2021-12-02"
    signed = (
        f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n/{_ACCOUNT}/{_ACCOUNT}/{name}\nrestype:container"
    )
    digest = hmac.new(base64.b64decode(_ACCOUNT_KEY), signed.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": date,
        "x-ms-version": version,
        "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
        "content-type": "",
    }
    request = Request(f"{store.address}/{_ACCOUNT}/{name}?restype=container", b"", headers, method="PUT")
    urlopen(request, timeout=5).close()


def _wait_for(attempt: Callable[[], None]) -> None:
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return attempt()
        except Exception:  # each client has errors of its own
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


@contextmanager
def _process(*command: str) -> Iterator[None]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=REPOSITORY, env=environment, **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        process.kill()
        process.wait()
