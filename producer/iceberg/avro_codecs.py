"""The codecs of Avro container files (https://avro.apache.org, Required and Optional Codecs).

PyIceberg's own need packages that an installation may lack, and unpack a block into whatever memory it takes.
"""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

#: What a block may hold whatever its size, and else for each of its bytes: entries of manifests repeat each other, but
#: codecs go up to a thousand and more.
_ANY_BLOCK: Final = 32 << 20
_MOST_RATIO: Final = 100
#: Bytes that are unpacked at a time.
_PIECE: Final = 1 << 20
#: Memory that a decoder of xz may ask for.
_XZ_MEMORY: Final = 128 << 20
_CHECKSUM: Final = 4

_Unpack = Callable[[bytes, int], bytes]


class Codec(NamedTuple):
    """One codec; :attr:`pack` takes a block and a level, which is the codec's usual one where it is None."""

    pack: Callable[[bytes, int | None], bytes]
    unpack: _Unpack

    def unpacked(self, block: bytes) -> bytes:
        """A block without its compression.

        Raises:
            ValueError: it is not whole, or was made to fill the memory of who reads it.
        """
        return self.unpack(block, _ANY_BLOCK + _MOST_RATIO * len(block))


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int = ...) -> bytes: ...


def _one_stream(decompressor: Callable[[], _Decompressor]) -> _Unpack:
    def unpack(block: bytes, most: int) -> bytes:
        stream = decompressor()
        plain = stream.decompress(block, most)
        if not stream.eof:
            raise _unfinished(block, plain, most)
        return plain

    return unpack


def _inflate(block: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    plain = stream.decompress(block, most)
    if not stream.eof:
        raise _unfinished(block, plain, most)
    return plain


def _deflate(block: bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=-zlib.MAX_WBITS)
    return stream.compress(block) + stream.flush()


def _pack_snappy(block: bytes, level: int | None) -> bytes:
    """Snappy's bytes, followed by the CRC-32 of what they hold."""
    packed = pa.compress(block, codec="snappy", asbytes=True)
    return bytes(packed) + zlib.crc32(block).to_bytes(_CHECKSUM, "big")


def _unpack_snappy(block: bytes, most: int) -> bytes:
    packed, checksum = block[:-_CHECKSUM], block[-_CHECKSUM:]
    size = _stated_size(packed)
    if size > most:
        raise ValueError(f"a block of {len(block)} bytes holds more than {most} bytes")
    plain = bytes(pa.decompress(packed, decompressed_size=size, codec="snappy", asbytes=True))
    if zlib.crc32(plain).to_bytes(_CHECKSUM, "big") != checksum:
        raise ValueError("a block does not have its checksum")
    return plain


def _stated_size(packed: bytes) -> int:
    """What a snappy block says of its size, the first number in it: seven bits a byte, the lowest first."""
    size = 0
    for place, octet in enumerate(packed[:5]):
        size |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return size
    raise ValueError("a block does not say how long it is")


def _pack_zstandard(block: bytes, level: int | None) -> bytes:
    return bytes(pa.Codec("zstd", compression_level=level).compress(block, asbytes=True))


def _unpack_zstandard(block: bytes, most: int) -> bytes:
    if not block:
        raise ValueError("an empty block is none of zstandard")
    pieces, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(block), "zstd") as stream:
        while piece := stream.read(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise ValueError(f"a block of {len(block)} bytes holds more than {most} bytes")
    return b"".join(pieces)


def _unfinished(block: bytes, plain: bytes, most: int) -> ValueError:
    grows = "holds more than" if len(plain) >= most else "ends before its end, after"
    return ValueError(f"a block of {len(block)} bytes {grows} {len(plain)} bytes")


#: By Avro's names.
CODECS: Final[Mapping[str, Codec]] = {
    "null": Codec(lambda block, level: block, lambda block, most: block),
    "deflate": Codec(_deflate, _inflate),
    "snappy": Codec(_pack_snappy, _unpack_snappy),
    "zstandard": Codec(_pack_zstandard, _unpack_zstandard),
    "bzip2": Codec(lambda block, level: bz2.compress(block), _one_stream(bz2.BZ2Decompressor)),
    "xz": Codec(
        lambda block, level: lzma.compress(block),
        _one_stream(lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)),
    ),
}
