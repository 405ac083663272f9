"""Deletion vectors: the deleted rows of one data file as a set of positions (Puffin spec, ``deletion-vector-v1``)."""

from __future__ import annotations

import array
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from workers.runtime.errors import CorruptFile

Positions = npt.NDArray[np.int64]

#: The largest position. The reference implementation keeps the last 32-bit key free.
MAX_POSITION: Final = (0x7FFF_FFFE << 32) | 0xFFFF_FFFF

_MAGIC: Final = b"\xd1\xd3\x39\x64"
_MAX_KEY: Final = 0x7FFF_FFFF
_MAX_LENGTH: Final = 0x7FFF_FFFF
#: Length, magic, number of bitmaps, checksum.
_MIN_BLOB: Final = 4 + 4 + 8 + 4


class DeletionVector:
    """A mutable set of row positions between 0 and ``MAX_POSITION``.

    Held as one 32-bit roaring bitmap for each distinct upper half of a position; none of them is empty.
    """

    __slots__ = ("_bitmaps",)

    def __init__(self, bitmaps: dict[int, BitMap]) -> None:
        self._bitmaps = bitmaps

    @classmethod
    def of(cls, positions: npt.ArrayLike) -> DeletionVector:
        """Return the vector of these positions, in any order and repeated or not."""
        vector = cls({})
        vector.add(np.asarray(positions, dtype=np.int64))
        return vector

    @classmethod
    def from_blob(cls, blob: bytes, path: str, cardinality: int | None = None) -> DeletionVector:
        """Read the blob of the file ``path``, and check its frame, its checksum and the cardinality if one is given.

        Raises:
            CorruptFile: a byte of the blob is not what the spec asks for.
        """
        try:
            vector = cls(dict(_parse_bitmaps(_unframe(blob))))
        except ValueError as error:
            raise CorruptFile(path, f"the deletion vector is corrupt: {error}") from error
        if cardinality is not None and vector.cardinality != cardinality:
            raise CorruptFile(
                path, f"the deletion vector holds {vector.cardinality} positions, its metadata says {cardinality}"
            )
        return vector

    @property
    def cardinality(self) -> int:
        """The number of positions."""
        return sum(len(bitmap) for bitmap in self._bitmaps.values())

    def add(self, positions: Positions) -> None:
        """Add positions, in any order and repeated or not.

        Raises:
            ValueError: a position is negative or above ``MAX_POSITION``; then nothing is added.
        """
        if not positions.size:
            return
        if positions.min() < 0 or positions.max() > MAX_POSITION:
            raise ValueError(f"positions lie between 0 and {MAX_POSITION}: {positions.min()} to {positions.max()}")
        for key, lower in _split(positions):
            bitmap = self._bitmaps.get(key)
            self._bitmaps[key] = lower if bitmap is None else bitmap | lower

    def union(self, other: DeletionVector) -> DeletionVector:
        """Return a new vector that deletes what either of the two deletes."""
        one, two = self._bitmaps, other._bitmaps
        return DeletionVector({key: one.get(key, BitMap()) | two.get(key, BitMap()) for key in {**one, **two}})

    def contains(self, positions: Positions) -> npt.NDArray[np.bool_]:
        """Return for each position, in whatever order, whether it is in the set."""
        found = np.zeros(positions.shape, dtype=np.bool_)
        keys = positions >> 32
        for key, bitmap in self._bitmaps.items():
            asked = np.flatnonzero(keys == key)
            if not asked.size:
                continue
            lower = _lower(positions[asked])
            hits = _values(_bitmap(lower) & bitmap)
            if hits.size:
                nearest = np.minimum(np.searchsorted(hits, lower), hits.size - 1)
                found[asked] = hits[nearest] == lower
        return found

    def positions(self) -> Positions:
        """Return all positions, ascending."""
        parts = [_values(bitmap).astype(np.int64) | (key << 32) for key, bitmap in sorted(self._bitmaps.items())]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)

    def to_blob(self) -> bytes:
        """Return the blob, with runs wherever they take less space.

        Raises:
            ValueError: the blob is larger than the 2 GiB that its length field can hold.
        """
        parts = [_MAGIC, struct.pack("<q", len(self._bitmaps))]
        for key, bitmap in sorted(self._bitmaps.items()):
            bitmap.run_optimize()
            parts += [struct.pack("<i", key), bitmap.serialize()]
        body = b"".join(parts)
        if len(body) > _MAX_LENGTH:
            raise ValueError(f"a deletion vector of {len(body)} bytes does not fit into a blob")
        return b"".join([struct.pack(">i", len(body)), body, struct.pack(">I", zlib.crc32(body))])


def _unframe(blob: bytes) -> memoryview:
    """Return what lies between magic and checksum."""
    if len(blob) < _MIN_BLOB:
        raise ValueError(f"{len(blob)} bytes are too few")
    (length,) = struct.unpack_from(">i", blob)
    if length != len(blob) - 8:
        raise ValueError(f"its length field says {length}, {len(blob) - 8} bytes are there")
    body = memoryview(blob)[4:-4]
    if bytes(body[:4]) != _MAGIC:
        raise ValueError(f"its magic is {body[:4].hex()}, not {_MAGIC.hex()}")
    (checksum,) = struct.unpack_from(">I", blob, len(blob) - 4)
    if zlib.crc32(body) != checksum:
        raise ValueError("its checksum does not match")
    return body[4:]


def _parse_bitmaps(body: memoryview) -> Iterator[tuple[int, BitMap]]:
    (count,) = struct.unpack_from("<q", body)
    offset, last = 8, -1
    # Each bitmap takes at least 12 bytes, so a wrong count ends at the first bitmap that is missing.
    while count != 0:
        if offset + 4 > len(body):
            raise ValueError("it ends before its last bitmap")
        (key,) = struct.unpack_from("<I", body, offset)
        if key > _MAX_KEY:
            raise ValueError(f"bitmap key {key} makes negative positions")
        if key <= last:
            raise ValueError(f"bitmap key {key} follows {last}")
        try:
            # Any buffer will do, whatever the stub says; a slice of bytes would be a copy for each bitmap.
            bitmap = BitMap.deserialize(body[offset + 4 :])  # type: ignore[arg-type]
        except (ValueError, IndexError) as error:
            raise ValueError(f"bitmap {key} cannot be read: {error}") from error
        # The portable format has one size for each content, so what was read is as long as what would be written.
        offset += 4 + len(bitmap.serialize())
        if bitmap:
            yield key, bitmap
        last = key
        count -= 1
    if offset != len(body):
        raise ValueError(f"{len(body) - offset} bytes follow its last bitmap")


def _split(positions: Positions) -> Iterator[tuple[int, BitMap]]:
    """Yield the lower halves of the positions by their upper half."""
    if positions.min() >> 32 == positions.max() >> 32:
        yield int(positions.min() >> 32), _bitmap(_lower(positions))
        return
    ordered = np.sort(positions, axis=None)
    keys = ordered >> 32
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    for start, part in zip(starts, np.split(ordered, starts[1:]), strict=True):
        yield int(keys[start]), _bitmap(_lower(part))


def _lower(positions: Positions) -> npt.NDArray[np.uint32]:
    return (positions & 0xFFFF_FFFF).astype(np.uint32)


def _bitmap(values: npt.NDArray[np.uint32]) -> BitMap:
    # pyroaring takes an array.array in one go and any other sequence one Python integer at a time.
    return BitMap(array.array("I", values.tobytes()))


def _values(bitmap: BitMap) -> npt.NDArray[np.uint32]:
    return np.frombuffer(bitmap.to_array(), dtype=np.uint32)
