"""The stream that reads an object: the same bytes in any order, and few requests."""

from __future__ import annotations

import io
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.storage.input_stream import TAIL_BYTES, ObjectInputStream

CONTENTS = bytes(range(256)) * (5 * TAIL_BYTES // 256)
SIZE = len(CONTENTS)


class Store:
    """An object in memory that notes the ranges that are read."""

    def __init__(self, contents: bytes = CONTENTS) -> None:
        self.contents = contents
        self.ranges: list[tuple[int, int]] = []
        self._lock = threading.Lock()

    def read(self, start: int, end: int) -> memoryview:
        with self._lock:
            self.ranges.append((start, end))
        return memoryview(self.contents[start:end])

    def open(self) -> ObjectInputStream:
        return ObjectInputStream(self.read, len(self.contents), memoryview(self.contents[-TAIL_BYTES:]))


def test_a_small_object_needs_no_other_request() -> None:
    store = Store(b"0123456789")
    stream = store.open()
    assert stream.read() == b"0123456789"
    assert stream.read() == b""
    assert stream.seek(-3, io.SEEK_END) == 7
    assert stream.read(100) == b"789"
    assert store.ranges == []


def test_an_empty_object() -> None:
    assert Store(b"").open().read() == b""


def test_announced_ranges_are_read_once_each_and_those_that_are_close_together() -> None:
    store = Store()
    stream = store.open()
    stream.expect([(0, 100), (1000, 2000), (3 * TAIL_BYTES, 3 * TAIL_BYTES + 50), (SIZE - 10, SIZE)])
    for start, end in [(3 * TAIL_BYTES, 3 * TAIL_BYTES + 50), (0, 50), (50, 100), (1000, 2000), (SIZE - 10, SIZE)]:
        stream.seek(start)
        assert stream.read(end - start) == CONTENTS[start:end]
    assert sorted(store.ranges) == [(0, 2000), (3 * TAIL_BYTES, 3 * TAIL_BYTES + 50)]


def test_a_large_range_comes_in_pieces_one_ahead() -> None:
    store = Store(CONTENTS * 8)
    stream = store.open()
    end = 30 * TAIL_BYTES
    stream.expect([(0, end)])
    assert len(store.ranges) <= 1  # the others are requested while the first is used
    found = b"".join(stream.read(100_000) for _ in range(0, end, 100_000))
    assert found[:end] == store.contents[:end]
    assert all(stop - start <= 8 << 20 for start, stop in store.ranges)
    announced = [found for found in store.ranges if found[1] <= end]
    assert len(announced) == len(set(announced))


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 3_000_000)), max_size=8), st.data())
def test_reads_return_the_bytes_whatever_was_announced(ranges: list[tuple[int, int]], data: st.DataObject) -> None:
    stream = Store().open()
    stream.expect([(start, min(start + length, SIZE)) for start, length in ranges])
    for start, length in data.draw(st.permutations(ranges)):
        stream.seek(start)
        assert stream.read(length) == CONTENTS[start : start + length]


def test_an_error_of_a_range_that_was_read_ahead_is_raised_where_it_is_used() -> None:
    def fail(start: int, end: int) -> memoryview:
        raise OSError(f"{start} to {end}")

    stream = ObjectInputStream(fail, SIZE, memoryview(CONTENTS[-TAIL_BYTES:]))
    stream.expect([(0, 100)])
    stream.seek(SIZE - 5)
    assert stream.read() == CONTENTS[-5:]
    stream.seek(10)
    with pytest.raises(OSError, match="0 to 100"):
        stream.read(10)


def test_arrow_reads_parquet_through_it() -> None:
    rows = pa.table({"id": range(200_000), "name": [f"name {n}" for n in range(200_000)]})
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=50_000)
    store = Store(sink.getvalue() + b"")
    assert pq.ParquetFile(store.open()).read() == rows
