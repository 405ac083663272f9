"""Large files are uploaded in parts: what fails leaves none, and what a killed process leaves can be found."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from producer.storage.object_store_io import ObjectStoreFileIO
from tests.support.repository import REPOSITORY
from tests.support.stores import BUCKETS, Store

MEGABYTE = b"0123456789abcdef" * (1 << 16)


def uploads(store: Store) -> list[str]:
    """The keys of uploads that are neither complete nor aborted."""
    found: list[dict[str, Any]] = store.client.list_multipart_uploads(Bucket=BUCKETS[0]).get("Uploads", [])
    return [upload["Key"] for upload in found]


@pytest.mark.parametrize("name", ["versitygw", "moto", "azurite"])
def test_a_large_file(servers: dict[str, Store], name: str) -> None:
    """fake-gcs-server has no uploads in parts of the XML interface, which obstore uses."""
    store = servers[name]
    io = ObjectStoreFileIO(store.properties)
    path = store.location("large")
    with io.new_output(path).create(overwrite=True) as stream:
        for _ in range(20):
            stream.write(MEGABYTE)
    assert len(io.new_input(path)) == 20 * len(MEGABYTE)
    with io.new_input(path).open() as found:
        found.seek(9 * len(MEGABYTE) - 8)
        assert bytes(found.read(24)) == MEGABYTE[-8:] + MEGABYTE[:16]


@pytest.mark.parametrize("name", ["versitygw", "moto"])
def test_a_writer_that_fails_leaves_no_parts(servers: dict[str, Store], name: str) -> None:
    store = servers[name]
    io = ObjectStoreFileIO(store.properties)
    path = store.location("failed")

    def write() -> None:
        with io.new_output(path).create(overwrite=True) as stream:
            for _ in range(20):
                stream.write(MEGABYTE)
            deadline = time.monotonic() + 60
            while not uploads(store):
                assert time.monotonic() < deadline
            raise InterruptedError("a writer's own error")

    with pytest.raises(InterruptedError, match="own error"):
        write()
    assert uploads(store) == []
    assert not io.new_input(path).exists()


def test_a_killed_writer_leaves_parts_that_can_be_found_and_aborted(versitygw: Store) -> None:
    """A lifecycle rule of the bucket does it on S3."""
    program = f"""
import os, signal
from producer.storage.object_store_io import ObjectStoreFileIO
stream = ObjectStoreFileIO({versitygw.properties!r}).new_output({versitygw.location("killed")!r}).create()
for _ in range(40):
    stream.write(bytes(1 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False)
    assert uploads(versitygw) == ["killed"]
    assert not ObjectStoreFileIO(versitygw.properties).new_input(versitygw.location("killed")).exists()
    (left,) = versitygw.client.list_multipart_uploads(Bucket=BUCKETS[0])["Uploads"]
    versitygw.client.abort_multipart_upload(Bucket=BUCKETS[0], Key="killed", UploadId=left["UploadId"])
    assert uploads(versitygw) == []
