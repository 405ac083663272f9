"""A filter of keys: whether a row's key may be among the deletes.

A blocked Bloom filter in a file that all tasks map, so that more cores need no more memory. About sixteen bits a key
let one row in a hundred through that does not match; rows that match always pass.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.arrow.fields import null_mask

Words = npt.NDArray[np.uint64]
Hashes = npt.NDArray[np.uint64]

#: A key sets three bits of one word: one access to memory for each row that is asked for.
_BITS_PER_KEY: Final = 16
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_FINISH: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_NULL: Final = np.uint64(0x5851F42D4C957F2D)
_LOW_BITS: Final = np.uint64(63)
_ONE: Final = np.uint64(1)
#: Of a text, the first 32 bytes, the last 8 and the length are hashed.
_TEXT_WORDS: Final = 4
_TEXT_BYTES: Final = 8 * (_TEXT_WORDS + 1)
_TEXT_FACTORS: Final = np.array(
    [0x9DDFEA08EB382D69, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x87C37B91114253D5], dtype=np.uint64
)


class KeyFilter:
    """A set of hashes with false positives and no false negatives."""

    def __init__(self, words: Words) -> None:
        self._words = np.asarray(words)

    @classmethod
    def create(cls, path: Path, keys: int, max_bytes: int) -> Self:
        """Return an empty filter in a new file, sized for a number of keys."""
        words = max(1, min(keys * _BITS_PER_KEY // 64, max_bytes // 8, (1 << 32) - 1))
        with path.open("wb") as file:
            # A full disk is an error here; a write to a mapped page without space on disk would end the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, words * 8)
            else:
                file.truncate(words * 8)
        return cls(np.memmap(path, dtype=np.uint64, mode="r+", shape=(words,)))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Return a filter that was made before; nothing is copied."""
        return cls(np.memmap(path, dtype=np.uint64, mode="r"))

    def add(self, hashes: Hashes) -> None:
        """Add keys by their hashes."""
        np.bitwise_or.at(self._words, self._indexes(hashes), _masks(hashes))

    def may_contain(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return False for each hash that was certainly never added."""
        masks = _masks(hashes)
        found = self._words[self._indexes(hashes)]
        found &= masks
        return np.equal(found, masks)

    def distinct(self, added: int) -> int:
        """Return about how many different keys there are, of ``added`` in all, from the share of bits that are set."""
        bits = self._words.size * 64
        share = int(np.bitwise_count(self._words).sum(dtype=np.int64)) / bits
        if share > 0.99:
            return added
        each = (1 - (63 / 64) ** 3) / self._words.size
        return min(added, round(math.log1p(-share) / math.log1p(-each))) if each < 1 else min(added, 1)

    def _indexes(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        indexes: Words = hashes >> np.uint64(32)
        indexes *= np.uint64(self._words.size)
        indexes >>= np.uint64(32)
        return indexes.view(np.int64)


def hash_keys(columns: Sequence[pa.Array], seed: int | npt.NDArray[np.int64] = 0, *, whole: bool = False) -> Hashes:
    """Return one hash for each row of canonical key columns; equal keys have equal hashes, and null equals null.

    Args:
        columns: The keys.
        seed: Of all rows, or of each; other seeds give other hashes.
        whole: Hash all bytes of long texts, so that few different keys have the same hash. Keys without texts of more
            than 40 bytes have the same hash either way.
    """
    hashes = np.empty(len(columns[0]), dtype=np.uint64)
    hashes[:] = (np.atleast_1d(np.asarray(seed, dtype=np.uint64)) + _ONE) * _FINISH
    for column in columns:
        nulls = null_mask(column)
        for word in _words_of(column, whole):
            if nulls is not None:
                word = np.where(nulls, _NULL, word)
            hashes ^= word
            hashes *= _MIX
            hashes ^= hashes >> np.uint64(32)
    hashes *= _FINISH
    hashes ^= hashes >> np.uint64(29)
    hashes *= _MIX
    hashes ^= hashes >> np.uint64(32)
    return hashes


def whole_hashes(columns: Sequence[pa.Array], seed: int | npt.NDArray[np.int64], hashes: Hashes) -> Hashes:
    """Return the hashes of whole keys, from those that :func:`hash_keys` gives by default."""
    if any(_longest(column) > _TEXT_BYTES for column in columns):
        return hash_keys(columns, seed, whole=True)
    return hashes


def _longest(column: pa.Array) -> int:
    """Return the bytes of the longest text; 0 where there are none."""
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) or not len(column):
        return 0
    return int(np.diff(_offsets(column)).max())


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return where each text begins in the column's bytes, and where the last one ends."""
    start, rows = column.offset, len(column)
    return np.frombuffer(column.buffers()[1], dtype=np.int32)[start : start + rows + 1]


def _masks(hashes: Hashes) -> Words:
    masks = _ONE << (hashes & _LOW_BITS)
    masks |= _ONE << ((hashes >> np.uint64(6)) & _LOW_BITS)
    masks |= _ONE << ((hashes >> np.uint64(12)) & _LOW_BITS)
    return masks


def _words_of(column: pa.Array, whole: bool) -> list[Words]:
    """Return the values as words of eight bytes; anything where they are null."""
    type_, rows, start = column.type, len(column), column.offset
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _text_words(column, whole)
    if pa.types.is_boolean(type_):
        return [column.cast(pa.uint8()).fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)]
    values = column.buffers()[1]
    if pa.types.is_decimal(type_):
        pairs = np.frombuffer(values, dtype=np.uint64)[2 * start : 2 * (start + rows)].reshape(rows, 2)
        return [pairs[:, 0], pairs[:, 1]]
    if pa.types.is_int32(type_):
        return [np.frombuffer(values, dtype=np.int32)[start : start + rows].astype(np.int64).view(np.uint64)]
    return [np.frombuffer(values, dtype=np.uint64)[start : start + rows]]


def _text_words(column: pa.Array, whole: bool) -> list[Words]:
    """Return the lengths, and a word mixed of each text's bytes; neither depends on the rest of the column."""
    rows, data = len(column), column.buffers()[2]
    bounds = _offsets(column).astype(np.int64)
    begins, ends = bounds[:-1], bounds[1:]
    lengths = (ends - begins).view(np.uint64)
    content = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    if content.size < 8:
        content = np.concatenate([content, np.zeros(8, dtype=np.uint8)])
    # Eight bytes from any byte on.
    windows: Words = np.ndarray((content.size - 7,), dtype="<u8", buffer=content, strides=(1,))
    longest = int(lengths.max()) if rows else 0
    mixed = _first_bytes(windows, begins, lengths)
    last = ends - 8
    for index in range(1, _TEXT_WORDS + 1):
        if longest <= 8 * index:
            break
        # Where fewer than eight bytes are left, the last eight are taken; where none are, nothing.
        reached = lengths > np.uint64(8 * index)
        at = np.minimum(begins + 8 * index, last) if index < _TEXT_WORDS else last
        word = windows[np.where(reached, at, 0)]
        mixed += np.where(reached, word, np.uint64(0)) * _TEXT_FACTORS[index - 1]
    if whole and longest > _TEXT_BYTES:
        long = np.flatnonzero(lengths > np.uint64(_TEXT_BYTES))
        for index in range(_TEXT_WORDS, -(-longest // 8)):
            rest = long[lengths[long] > np.uint64(8 * index)]
            mixed[rest] *= _MIX
            mixed[rest] ^= windows[np.minimum(begins[rest] + 8 * index, last[rest])]
    return [lengths, mixed]


def _first_bytes(windows: Words, begins: npt.NDArray[np.int64], lengths: Words) -> Words:
    """Return the first eight bytes of each text; of a shorter one only its own."""
    at = np.minimum(begins, windows.size - 1)
    word: Words = windows[at]
    short = lengths < 8
    if short.any():
        # A window that would reach past the end begins earlier.
        own = word >> np.minimum(8 * (begins - at), 63).astype(np.uint64)
        own &= (_ONE << np.minimum(8 * lengths, np.uint64(56))) - _ONE
        word = np.where(short, own, word)
    return word
