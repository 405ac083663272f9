"""32-bit Murmur3 (x86 variant, seed 0) of a column: what bucket partitions are made of (spec, Appendix B)."""

from __future__ import annotations

from typing import Any, Final

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint32]

#: Longer values are so few in a batch that each can be hashed by itself.
_LONG: Final = 512


def hash_longs(values: npt.NDArray[np.int64]) -> Hashes:
    """Hashes of integers as the 8 bytes of a long."""
    words = np.ascontiguousarray(values).view(np.uint32).reshape(-1, 2)
    return _finished(_mixed(_mixed(np.zeros(len(values), np.uint32), words[:, 0]), words[:, 1]), np.uint32(8))


def hash_bytes(array: pa.Array) -> Hashes:
    """Hashes of the bytes of a binary array's values; anything where it is null."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    raw = array.buffers()[2]
    data = np.frombuffer(raw, np.uint8) if raw is not None and raw.size else np.zeros(1, np.uint8)
    sizes = np.diff(offsets)
    # Longest first: those that still have bytes are always in front.
    order = np.argsort(-sizes, kind="stable")
    found = np.empty(len(array), np.uint32)
    long = int(np.count_nonzero(sizes > _LONG))
    for row in order[:long].tolist():
        found[row] = mmh3.hash(data[offsets[row] : offsets[row + 1]].tobytes(), signed=False)
    rest = order[long:]
    found[rest] = _hashed(data, offsets[:-1][rest].astype(np.int64), sizes[rest])
    return found


def _hashed(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int32]) -> Hashes:
    state = np.zeros(len(starts), np.uint32)
    blocks = sizes // 4
    for block in range(int(blocks[0]) if len(blocks) else 0):
        here = int(np.searchsorted(-blocks, -block, "left"))  # rows of more blocks than this
        state[:here] = _mixed(state[:here], _word(data, starts[:here] + 4 * block, 4))
    ends, tails = starts + 4 * blocks, sizes % 4
    for size in (1, 2, 3):
        rows = np.flatnonzero(tails == size)
        state[rows] ^= _scrambled(_word(data, ends[rows], size))
    return _finished(state, sizes.astype(np.uint32))


def _word(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], size: int) -> Hashes:
    """Bytes at each start as a little-endian number."""
    word = data[starts].astype(np.uint32)
    for byte in range(1, size):
        word |= data[starts + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(state: Hashes, word: Hashes) -> Hashes:
    return _rotated(state ^ _scrambled(word), 13) * np.uint32(5) + np.uint32(0xE6546B64)


def _scrambled(word: Hashes) -> Hashes:
    return _rotated(word * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(word: Hashes, by: int) -> Hashes:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))


def _finished(state: Hashes, size: Any) -> Hashes:
    state = state ^ size
    state = (state ^ (state >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    state = (state ^ (state >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return state ^ (state >> np.uint32(16))
