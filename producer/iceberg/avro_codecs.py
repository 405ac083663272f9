"""The codecs of Avro container files (https://avro.apache.org, Required and Optional Codecs).

PyIceberg's own codecs need packages that an installation may lack, and do not limit the memory that a block takes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

#: Limit of the decompressed size of a block: a base and a ratio. Entries of manifests repeat each other, but a codec
#: may compress a thousandfold and more.
_BASE_LIMIT: Final = 32 << 20
_MAX_RATIO: Final = 100
#: Bytes that are decompressed at a time.
_CHUNK: Final = 1 << 20
#: Memory that an xz decoder may use.
_XZ_MEMORY: Final = 128 << 20
_CHECKSUM: Final = 4


class Codec(NamedTuple):
    """One codec."""

    #: Takes a block and a level; None is the codec's default level.
    compress: Callable[[bytes, int | None], bytes]
    #: Takes a block and the largest size that its contents may have.
    decompress: Callable[[bytes, int], bytes]

    def decompress_limited(self, block: bytes) -> bytes:
        """Decompress a block.

        Raises:
            ValueError: The block is truncated, or decompresses to so much that it may be meant to exhaust memory.
        """
        return self.decompress(block, _BASE_LIMIT + _MAX_RATIO * len(block))


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def _decompress(new_stream: Callable[[], _Decompressor], block: bytes, limit: int) -> bytes:
    stream = new_stream()
    data = stream.decompress(block, limit)
    if not stream.eof:
        problem = "holds more than" if len(data) >= limit else "ends before its end, after"
        raise ValueError(f"a block of {len(block)} bytes {problem} {len(data)} bytes")
    return data


def _compress_deflate(block: bytes, level: int | None) -> bytes:
    return zlib.compress(block, zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=-zlib.MAX_WBITS)


def _compress_snappy(block: bytes, level: int | None) -> bytes:
    """Return Snappy's bytes, followed by the CRC-32 of the uncompressed block."""
    compressed = pa.compress(block, codec="snappy", asbytes=True)
    return bytes(compressed) + zlib.crc32(block).to_bytes(_CHECKSUM, "big")


def _decompress_snappy(block: bytes, limit: int) -> bytes:
    compressed, checksum = block[:-_CHECKSUM], block[-_CHECKSUM:]
    size = _snappy_size(compressed)
    if size > limit:
        raise ValueError(f"a block of {len(block)} bytes holds more than {limit} bytes")
    data = bytes(pa.decompress(compressed, decompressed_size=size, codec="snappy", asbytes=True))
    if zlib.crc32(data).to_bytes(_CHECKSUM, "big") != checksum:
        raise ValueError("a block does not have its checksum")
    return data


def _snappy_size(compressed: bytes) -> int:
    """Return the uncompressed size, the first number in a Snappy block: seven bits a byte, the lowest first."""
    size = 0
    for place, octet in enumerate(compressed[:5]):
        size |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return size
    raise ValueError("a block does not say how long it is")


def _compress_zstandard(block: bytes, level: int | None) -> bytes:
    return bytes(pa.Codec("zstd", compression_level=level).compress(block, asbytes=True))


def _decompress_zstandard(block: bytes, limit: int) -> bytes:
    if not block:
        raise ValueError("an empty block is not a zstandard block")
    chunks, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        while chunk := stream.read(_CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise ValueError(f"a block of {len(block)} bytes holds more than {limit} bytes")
    return b"".join(chunks)


#: The codecs by their Avro names.
CODECS: Final[Mapping[str, Codec]] = {
    "null": Codec(lambda block, level: block, lambda block, limit: block),
    "deflate": Codec(_compress_deflate, partial(_decompress, partial(zlib.decompressobj, -zlib.MAX_WBITS))),
    "snappy": Codec(_compress_snappy, _decompress_snappy),
    "zstandard": Codec(_compress_zstandard, _decompress_zstandard),
    "bzip2": Codec(lambda block, level: bz2.compress(block), partial(_decompress, bz2.BZ2Decompressor)),
    "xz": Codec(
        lambda block, level: lzma.compress(block),
        partial(_decompress, partial(lzma.LZMADecompressor, memlimit=_XZ_MEMORY)),
    ),
}
