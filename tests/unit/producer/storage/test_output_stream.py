"""The stream that writes an object: whole or not at all, in one request where it fits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from producer.storage.output_stream import PART_BYTES, ObjectOutputStream, WritesBehind


class Store:
    """Notes what is put at once and what is uploaded in parts."""

    def __init__(self) -> None:
        self.put: list[bytes] = []
        self.uploaded: list[bytes] = []
        self.aborted: list[BaseException] = []

    def upload(self, pieces: Iterator[bytes]) -> None:
        try:
            self.uploaded.append(b"".join(pieces))
        except BaseException as error:
            self.aborted.append(error)
            raise

    def create(self) -> ObjectOutputStream:
        return ObjectOutputStream(self.put.append, self.upload)


def test_a_small_object_is_put_when_the_stream_is_closed() -> None:
    store = Store()
    with store.create() as stream:
        assert stream.write(b"12") == 2
        assert stream.write(memoryview(b"345")) == 3
        assert stream.tell() == 5
        assert store.put == []
    assert (store.put, store.uploaded) == ([b"12345"], [])
    stream.close()
    assert store.put == [b"12345"]


def test_a_large_object_is_uploaded_while_it_is_written() -> None:
    store = Store()
    piece = bytes(1_000_000)
    with store.create() as stream:
        for _ in range(3 * PART_BYTES // len(piece)):
            stream.write(piece)
    assert store.put == []
    assert [len(found) for found in store.uploaded] == [3 * PART_BYTES // len(piece) * len(piece)]


def test_an_object_whose_writer_fails_is_not_there_and_its_upload_is_aborted() -> None:
    for size in (10, 3 * PART_BYTES):
        store = Store()
        with pytest.raises(ZeroDivisionError), store.create() as stream:  # noqa: PT012
            stream.write(bytes(size))
            raise ZeroDivisionError
        assert (store.put, store.uploaded) == ([], [])
        assert len(store.aborted) == (size > PART_BYTES)


def test_an_upload_that_fails_is_raised_where_the_object_is_written() -> None:
    def fail(pieces: Iterator[bytes]) -> None:
        next(pieces)
        raise OSError("no space")

    stream = ObjectOutputStream(lambda contents: None, fail)
    with pytest.raises(OSError, match="no space"):  # noqa: PT012
        for _ in range(10):
            stream.write(bytes(PART_BYTES))
        stream.close()


def test_writes_behind_are_side_by_side_and_all_there_at_the_end() -> None:
    together, written = threading.Barrier(4), []

    def put(contents: bytes) -> None:
        together.wait(30)
        written.append(contents)

    with ThreadPoolExecutor(4) as pool:
        behind = WritesBehind(pool)
        for number in range(4):
            behind.add(put, b"%d" % number)
        behind.finish()
    assert sorted(written) == [b"0", b"1", b"2", b"3"]


def test_writes_behind_hold_a_bounded_number_of_bytes() -> None:
    held, most, lock = 0, 0, threading.Lock()

    def put(contents: bytes) -> None:
        nonlocal held
        with lock:
            held -= len(contents)

    with ThreadPoolExecutor(2) as pool:
        behind = WritesBehind(pool)
        for _ in range(40):
            with lock:
                held += 4 << 20
                most = max(most, held)
            behind.add(put, bytes(4 << 20))
        behind.finish()
    assert held == 0
    assert most <= 48 << 20


def test_a_write_behind_that_fails_is_raised_at_the_end() -> None:
    def fail(contents: bytes) -> None:
        raise PermissionError("denied")

    with ThreadPoolExecutor(2) as pool:
        behind = WritesBehind(pool)
        behind.add(fail, b"1")
        with pytest.raises(PermissionError, match="denied"):
            behind.finish()
