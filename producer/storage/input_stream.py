"""A seekable stream over one object that reads its end at once, and ranges that were announced ahead of their use."""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from producer.storage.concurrency import request_limit

#: The end of an object that is read at once: all of a small file, the footer of a large one.
TAIL_BYTES: Final = 1 << 20
#: What is read where nothing was announced.
_BLOCK_BYTES: Final = 1 << 20
#: Announced ranges are read in pieces of so many bytes; ranges that lie closer together are read as one.
_MAX_PIECE_BYTES: Final = 8 << 20
_MIN_PIECE_BYTES: Final = 1 << 20
_GAP_BYTES: Final = 256 << 10
#: Bytes of announced ranges that a stream holds, about: each range is read one piece ahead.
_WINDOW_BYTES: Final = 64 << 20


@dataclass(slots=True)
class _Piece:
    """A part of an announced range; ``following`` is read while this one is used."""

    start: int
    end: int
    following: _Piece | None = None
    bytes: Future[memoryview] | None = field(default=None, repr=False)


class ObjectInputStream(io.RawIOBase):
    """The bytes of one object.

    Args:
        read_range: Reads the bytes from a start to an end.
        size: The bytes of the object.
        tail: Its last bytes, which were read already.
    """

    def __init__(self, read_range: Callable[[int, int], memoryview], size: int, tail: memoryview) -> None:
        super().__init__()
        self._read_range = read_range
        self._size = size
        self._position = 0
        self._cached_start = size - len(tail)
        self._cached = tail
        self._tail_start = self._cached_start
        self._tail = tail
        self._pieces: list[_Piece] = []
        self._starts: list[int] = []

    def __len__(self) -> int:
        return self._size

    def expect(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Announce the ranges that are read next, each from its start to its end; earlier ones are forgotten.

        A piece of each is requested at once, all side by side.
        """
        wanted = sorted(
            (start, min(end, self._tail_start)) for start, end in ranges if start < min(end, self._tail_start)
        )
        size = max(_MIN_PIECE_BYTES, min(_MAX_PIECE_BYTES, _WINDOW_BYTES // (2 * max(1, len(wanted)))))
        firsts = [_pieces_of(start, end, size) for start, end in _coalesce(wanted, size)]
        self._pieces = [piece for pieces in firsts for piece in pieces]
        self._starts = [piece.start for piece in self._pieces]
        for pieces in firsts:
            self._request(pieces[0])

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, all that are left without a size; fewer only at the end."""
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1, /) -> memoryview:
        """Return the same as :meth:`read` without a copy, which Arrow asks for."""
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        found = self._bytes(self._position, self._position + count)
        self._position += count
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to a position, which is returned."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Drop what was read ahead."""
        self._pieces, self._starts, self._cached, self._tail = [], [], memoryview(b""), memoryview(b"")
        super().close()

    def _bytes(self, start: int, end: int) -> memoryview:
        if start >= end:
            return memoryview(b"")
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        if start >= self._cached_start and end <= self._cached_start + len(self._cached):
            return self._cached[start - self._cached_start : end - self._cached_start]
        piece = self._piece_at(start)
        if piece is not None and end <= piece.end:
            self._request(piece)
            if piece.following is not None:
                self._request(piece.following)
            assert piece.bytes is not None
            found = piece.bytes.result()[start - piece.start : end - piece.start]
            if end == piece.end:
                piece.bytes = None  # ranges are read once, from start to end
            return found
        if piece is not None:
            return memoryview(b"".join((self._bytes(start, piece.end), self._bytes(piece.end, end))))
        stop = min(max(end, start + _BLOCK_BYTES), self._size)
        self._cached_start, self._cached = start, self._read_range(start, stop)
        return self._cached[: end - start]

    def _piece_at(self, position: int) -> _Piece | None:
        index = bisect_right(self._starts, position) - 1
        return self._pieces[index] if index >= 0 and position < self._pieces[index].end else None

    def _request(self, piece: _Piece) -> None:
        if piece.bytes is None:
            piece.bytes = request_limit().pool.submit(self._read_range, piece.start, piece.end)


def _coalesce(ranges: Sequence[tuple[int, int]], max_bytes: int) -> list[tuple[int, int]]:
    """Join ranges that lie close together while they make one piece."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and start - joined[-1][1] <= _GAP_BYTES and end - joined[-1][0] <= max_bytes:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _pieces_of(start: int, end: int, size: int) -> list[_Piece]:
    """Split a range into pieces that know the one after them."""
    pieces = [_Piece(begin, min(begin + size, end)) for begin in range(start, end, size)]
    for piece, following in pairwise(pieces):
        piece.following = following
    return pieces
