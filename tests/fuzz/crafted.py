"""Inputs that nobody comes upon by chance: counts without records, bombs, and sets that contradict themselves."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator

from pyiceberg.table.puffin import MAGIC_BYTES

from tests.fuzz.samples import Samples

_COOKIE, _COOKIE_RUNS = 12346, 12347
_MANY = 300 << 20


def crafted(samples: Samples) -> dict[str, dict[str, bytes]]:
    """By target and by what is wrong with it; each must be refused."""
    return {
        "manifest list": dict(_avro(samples.files[samples.manifest_list])),
        "manifests": dict(_avro(samples.files[samples.manifests[0].manifest_path])),
        "puffin": dict(_puffin(samples)),
        "roaring": dict(_roaring()),
    }


def _avro(valid: bytes) -> Iterator[tuple[str, bytes]]:
    sync = valid[-16:]
    header = valid[: valid.index(sync) + 16]
    plain, deflated = header.replace(b"deflate", b"null\0\0\0"), header

    def block(count: int, content: bytes) -> bytes:
        return _long(count) + _long(len(content)) + content + sync

    assert b"deflate" in deflated
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    yield "records without an end", deflated + block(1 << 60, zlib.compress(b"\x02" * 64)[2:-1])
    yield "records of nothing", _renamed(plain) + block(1 << 60, b"")
    yield "fewer than none", deflated + block(-5, b"")
    yield "a bomb", deflated + block(1, bomb.compress(bytes(_MANY)) + bomb.flush())
    yield "a block without an end", deflated + _long(1) + _long(1 << 60) + b"x"
    for number in range(40):
        # Whatever field is there, its length or count is as large as can be.
        yield (
            f"lengths without an end, from byte {number} on",
            deflated + block(1, zlib.compress(b"\x02" * number + b"\xfe" + b"\xff" * 8 + b"\x01" * 40)[2:-4]),
        )


def _renamed(header: bytes) -> bytes:
    """A header whose records have no fields and whose codec is none."""
    start, sync = header[:4], header[-16:]
    schema = json.dumps({"type": "record", "name": "r", "fields": []}).encode()
    metadata = _long(1) + _text(b"avro.schema") + _text(schema) + _long(0)
    return start + metadata + sync


def _puffin(samples: Samples) -> Iterator[tuple[str, bytes]]:
    valid = samples.files[samples.vector.path]
    bomb = (
        # An LZ4 frame of zeros: magic, descriptor, blocks that repeat one byte.
        b"\x04\x22\x4d\x18\x64\x70\xb9" + _lz4_zeros(64) + struct.pack("<I", 0)
    )
    yield "a bomb", valid[:-12] + MAGIC_BYTES + bomb + struct.pack("<iI", len(bomb), 1) + MAGIC_BYTES
    blob = {"type": "deletion-vector-v1", "fields": [1], "snapshot-id": -1, "sequence-number": -1}
    for name, offset, length in (("far", 1 << 62, 8), ("long", 4, 1 << 62), ("before", -8, 4), ("negative", 4, -1)):
        footer = json.dumps({"blobs": [{**blob, "offset": offset, "length": length}]}).encode()
        tail = MAGIC_BYTES + footer + struct.pack("<iI", len(footer), 0) + MAGIC_BYTES
        yield f"a blob that is {name}", valid[: samples.vector.offset + samples.vector.size] + tail


def _lz4_zeros(blocks: int) -> bytes:
    """Blocks of four MB of zeros each, some kB long."""
    size = 4 << 20
    length = size - 5 - 1 - 19
    content = b"\x1f\x00\x01\x00" + b"\xff" * (length // 255) + bytes([length % 255]) + b"\x50" + bytes(5)
    return (struct.pack("<I", len(content)) + content) * blocks


def _roaring() -> Iterator[tuple[str, bytes]]:
    def of(*bitmaps: bytes, count: int | None = None) -> bytes:
        keyed = b"".join(struct.pack("<I", key) + bitmap for key, bitmap in enumerate(bitmaps))
        return struct.pack("<q", len(bitmaps) if count is None else count) + keyed

    def array(*values: int, said: int | None = None, key: int = 0) -> bytes:
        head = struct.pack("<IIHHI", _COOKIE, 1, key, (len(values) if said is None else said) - 1, 16)
        return head + struct.pack(f"<{len(values)}H", *values)

    def runs(*pairs: tuple[int, int], said: int = 1) -> bytes:
        head = struct.pack("<IBHH", _COOKIE_RUNS, 1, 0, said - 1) + struct.pack("<H", len(pairs))
        return head + b"".join(struct.pack("<HH", *pair) for pair in pairs)

    def bits(content: bytes, said: int) -> bytes:
        return struct.pack("<IIHHI", _COOKIE, 1, 0, said - 1, 16) + content

    yield "2**31 bitmaps", of(count=1 << 31)
    yield "less than none", of(array(1), count=-1)
    yield "2**31 containers", of(struct.pack("<II", _COOKIE, 1 << 31))
    yield "65537 containers", of(struct.pack("<II", _COOKIE, 65537) + bytes(65537 * 8))
    yield "an array that descends", of(array(9, 5, 1))
    yield "an array that repeats itself", of(array(5, 5, 5))
    yield "an array with more than it has", of(array(1, 2, said=9))
    yield "runs that overlap", of(runs((0, 9), (5, 9), said=20))
    yield "runs that descend", of(runs((100, 1), (5, 1), said=4))
    yield "runs past the end", of(runs((65535, 65535), said=1))
    yield "many runs of everything", of(runs(*[(0, 65535)] * 2000, said=65536))
    yield "no runs", of(runs())
    yield "bits that are fewer", of(bits(bytes(8192), said=5000))
    yield "bits that are more", of(bits(b"\xff" * 8192, said=4097))
    keys = struct.pack("<IIHHHHII", _COOKIE, 2, 5, 0, 5, 0, 24, 26) + struct.pack("<HH", 1, 2)
    yield "the same container twice", of(keys)
    yield "cardinality that wraps", of(array(*range(10), said=65536))


def _long(value: int) -> bytes:
    """As Avro writes whole numbers."""
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value
