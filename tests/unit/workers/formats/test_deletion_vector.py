from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap

from workers.formats.deletion_vector import MAX_POSITION, DeletionVector
from workers.runtime.errors import CorruptFile

FIXTURES = os.environ.get("ICEFLEET_FIXTURES", "")
golden = pytest.mark.skipif(not FIXTURES, reason="ICEFLEET_FIXTURES is unset: no files of other engines to read")
# Machines that do other work at the same time must not fail a test.
unhurried = settings(deadline=None)
BLOBS = Path(FIXTURES) / "apache-iceberg" / "deletion_vector_blobs"

edges = [0, 1, 0xFFFF, 0x1_0000, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 5 << 32, MAX_POSITION]
near_edges = st.builds(
    lambda edge, step: min(max(edge + step, 0), MAX_POSITION), st.sampled_from(edges), st.integers(-3, 3)
)
scattered = st.one_of(near_edges, st.integers(0, 500), st.integers(0, MAX_POSITION))
runs = st.builds(
    lambda start, length: list(range(start, start + length)), st.integers(0, 2**33), st.integers(1, 10_000)
)
position_sets = st.builds(
    lambda points, ranges: {*points, *(position for run in ranges for position in run)},
    st.lists(scattered, max_size=50),
    st.lists(runs, max_size=2),
)


def frame(body: bytes) -> bytes:
    """A blob with right length, magic and checksum around any body."""
    body = b"\xd1\xd3\x39\x64" + body
    return struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def bitmap(key: int, *positions: int) -> bytes:
    return struct.pack("<I", key) + BitMap(positions).serialize()


def corrupt(blob: bytes, cardinality: int | None = None) -> str:
    with pytest.raises(CorruptFile) as caught:
        DeletionVector.from_blob(blob, "s3://bucket/some.puffin", cardinality)
    assert caught.value.path == "s3://bucket/some.puffin"
    return caught.value.reason


@golden
@pytest.mark.parametrize("name", ["all-container-types", "empty", "small-alternating-values", "small-and-large-values"])
def test_blobs_of_the_reference_implementation_are_reproduced_byte_for_byte(name: str) -> None:
    blob = (BLOBS / f"{name}-position-index.bin").read_bytes()
    vector = DeletionVector.from_blob(blob, name)
    assert vector.to_blob() == blob
    assert DeletionVector.of(vector.positions()).to_blob() == blob
    shuffled = np.random.default_rng(7).permutation(vector.positions())
    assert DeletionVector.of(np.concatenate([shuffled, shuffled[:100]])).to_blob() == blob


@golden
def test_blobs_of_the_reference_implementation_hold_what_they_should() -> None:
    def positions(name: str) -> object:
        return DeletionVector.from_blob((BLOBS / f"{name}-position-index.bin").read_bytes(), name).positions().tolist()

    assert positions("empty") == []
    assert positions("small-alternating-values") == [1, 3, 5, 7, 9]
    assert positions("small-and-large-values") == [100, 101, 2147483747, 2147483748]
    mixed = DeletionVector.from_blob((BLOBS / "all-container-types-position-index.bin").read_bytes(), "", 132561)
    assert mixed.positions()[0] == 5
    assert mixed.positions()[-1] >> 32 == 1


@golden
def test_roaring_bitmaps_of_other_libraries_are_read() -> None:
    def read(name: str) -> DeletionVector:
        return DeletionVector.from_blob(frame((BLOBS / name).read_bytes()), name)

    assert read("64mapempty.bin").cardinality == 0
    assert read("64map32bitvals.bin").positions().tolist() == list(range(10))
    spread = [(key << 32) + low for key in range(10) for low in range(10)]
    assert read("64mapspreadvals.bin").positions().tolist() == spread
    # This one was damaged when it was published: its bytes went through a text encoding.
    with pytest.raises(CorruptFile, match="64maphighvals"):
        read("64maphighvals.bin")


@unhurried
@given(position_sets)
def test_any_set_of_positions_survives_the_blob(wanted: set[int]) -> None:
    vector = DeletionVector.of(list(wanted))
    assert vector.cardinality == len(wanted)
    again = DeletionVector.from_blob(vector.to_blob(), "", len(wanted))
    assert again.positions().tolist() == sorted(wanted)
    assert again.to_blob() == vector.to_blob()


@unhurried
@given(position_sets, position_sets)
def test_union_and_add_do_as_sets_do(left: set[int], right: set[int]) -> None:
    first, second = DeletionVector.of(list(left)), DeletionVector.of(list(right))
    union = first.union(second)
    assert union.positions().tolist() == sorted(left | right)
    assert first.positions().tolist() == sorted(left)
    union.add(np.array([MAX_POSITION]))
    assert second.positions().tolist() == sorted(right)
    first.add(second.positions())
    assert first.positions().tolist() == sorted(left | right)


@unhurried
@given(position_sets, st.lists(st.one_of(scattered, st.just(-1))))
def test_contains_answers_each_position_in_the_order_asked(held: set[int], strangers: list[int]) -> None:
    asked = [*strangers, *list(held)[::2], *strangers]
    answer = DeletionVector.of(list(held)).contains(np.array(asked, dtype=np.int64))
    assert answer.tolist() == [position in held for position in asked]


@unhurried
@given(st.sets(st.one_of(st.integers(0, 2**17), st.integers(2**31 - 5, 2**32 + 5)), min_size=1))
def test_pyiceberg_reads_the_same_positions(wanted: set[int]) -> None:
    # Its reader fails on a vector that starts above 2^32, so position 0 is always there.
    vector = DeletionVector.of([0, *wanted])
    blob = vector.to_blob()
    payload = (
        '{"blobs":[{"type":"deletion-vector-v1","fields":[2147483645],"snapshot-id":-1,"sequence-number":-1,'
        f'"offset":4,"length":{len(blob)},"properties":{{"referenced-data-file":"a"}}}}]}}'
    ).encode()
    file = b"PFA1" + blob + b"PFA1" + payload + struct.pack("<ii", len(payload), 0) + b"PFA1"
    (judged,) = deletion_vectors_from_puffin_file(PuffinFile(file))
    assert judged.to_vector().to_pylist() == vector.positions().tolist()


@pytest.mark.parametrize("position", [-1, MAX_POSITION + 1, 2**63 - 1])
def test_positions_out_of_range_are_refused_and_change_nothing(position: int) -> None:
    vector = DeletionVector.of([3])
    with pytest.raises(ValueError, match="positions lie between"):
        vector.add(np.array([1, position]))
    assert vector.positions().tolist() == [3]


def test_empty_vectors() -> None:
    vector = DeletionVector.of(())
    vector.add(np.empty(0, dtype=np.int64))
    assert vector.cardinality == 0
    assert vector.positions().dtype == np.int64
    assert not vector.contains(np.array([0, 1])).any()
    assert vector.contains(np.empty(0, dtype=np.int64)).tolist() == []
    assert DeletionVector.from_blob(vector.to_blob(), "", 0).cardinality == 0


def test_runs_take_a_few_bytes_and_millions_of_positions_no_time() -> None:
    vector = DeletionVector.of(np.arange(20_000_000))
    assert len(vector.to_blob()) < 10_000
    assert vector.cardinality == 20_000_000
    assert vector.contains(np.arange(19_999_990, 20_000_010)).sum() == 10


SAMPLE = DeletionVector.of([*range(5), 70_000, *range(100_000, 105_000, 2), 2**32 + 1]).to_blob()


@unhurried
@given(st.integers(0, len(SAMPLE) * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    damaged = bytearray(SAMPLE)
    damaged[bit // 8] ^= 1 << bit % 8
    assert corrupt(bytes(damaged))


@unhurried
@given(st.integers(0, len(SAMPLE) - 1))
def test_every_truncation_is_noticed(length: int) -> None:
    assert corrupt(SAMPLE[:length])


@unhurried
@given(st.binary(min_size=1, max_size=40))
def test_trailing_bytes_are_noticed(more: bytes) -> None:
    assert "length" in corrupt(SAMPLE + more)


@unhurried
@given(st.binary(max_size=200))
def test_any_other_body_is_corrupt_or_a_vector(body: bytes) -> None:
    try:
        vector = DeletionVector.from_blob(frame(body), "")
    except CorruptFile:
        return
    assert vector.cardinality == len(vector.positions())


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (b"", "too few"),
        (struct.pack(">i", -1) + b"\xd1\xd3\x39\x64" + bytes(12), "length"),
        (SAMPLE[:4] + b"\xd1\xd3\x39\x65" + SAMPLE[8:], "magic"),
        (SAMPLE[:-4] + bytes(4), "checksum"),
        (frame(struct.pack("<q", 2) + bitmap(1, 5) + bitmap(1, 6)), "key 1 follows 1"),
        (frame(struct.pack("<q", 2) + bitmap(1, 5) + bitmap(0, 6)), "key 0 follows 1"),
        (frame(struct.pack("<q", 1) + bitmap(2**31, 5)), "negative"),
        (frame(struct.pack("<q", 2) + bitmap(0, 5)), "ends before"),
        (frame(struct.pack("<q", -1) + bitmap(0, 5)), "ends before"),
        (frame(struct.pack("<q", 2**62)), "ends before"),
        (frame(struct.pack("<q", 1) + bitmap(0, 5) + b"\0"), "1 bytes follow"),
        (frame(struct.pack("<q", 0) + bitmap(0, 5)), "follow"),
        (frame(struct.pack("<q", 1) + bitmap(0, 5)[:-1]), "cannot be read"),
        (frame(struct.pack("<q", 1) + struct.pack("<I", 0)), "cannot be read"),
    ],
)
def test_wrong_blobs_say_what_is_wrong(blob: bytes, reason: str) -> None:
    assert reason in corrupt(blob)


def test_a_cardinality_that_differs_is_noticed() -> None:
    blob = DeletionVector.of([1, 2]).to_blob()
    assert "holds 2 positions, its metadata says 3" in corrupt(blob, cardinality=3)


def test_maps_without_positions_are_read_and_left_out_again() -> None:
    # The reference implementation writes one for every key below its highest.
    body = struct.pack("<q", 2) + bitmap(0) + bitmap(1, 1)
    vector = DeletionVector.from_blob(frame(body), "", 1)
    assert vector.positions().tolist() == [2**32 + 1]
    assert vector.to_blob() == frame(struct.pack("<q", 1) + bitmap(1, 1))
