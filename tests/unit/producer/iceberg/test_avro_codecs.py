"""Codecs of Avro files: as Avro's other implementations have them, and bounded in memory."""

from __future__ import annotations

import bz2
import io
import lzma
import subprocess
import sys
import zlib

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField, StringType

from producer.iceberg.avro import AvroReader, AvroWriter
from producer.iceberg.avro_codecs import CODECS

SCHEMA = Schema(NestedField(1, "text", StringType(), required=True))
TEXTS = [f"{number:05d} of many texts" * 3 for number in range(5000)]
#: Those that fastavro has in this environment.
OTHERS = ("null", "deflate", "bzip2", "xz")


def written(codec: str) -> bytes:
    writer = AvroWriter("texts", SCHEMA, SCHEMA, {}, (codec, None))
    for text in TEXTS:
        writer.add(Record(text))
    return writer.finish()


def read(contents: bytes) -> list[str]:
    return [record[0] for record in AvroReader(SCHEMA, types={}, enums={}).read(contents)]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_written_is_read(codec: str) -> None:
    contents = written(codec)
    assert codec.encode() in contents[:500]
    assert read(contents) == TEXTS


@pytest.mark.parametrize("codec", OTHERS)
def test_another_implementation_agrees(codec: str) -> None:
    assert [record["text"] for record in fastavro.reader(io.BytesIO(written(codec)))] == TEXTS
    schema = {
        "type": "record",
        "name": "texts",
        "fields": [{"name": "text", "type": "string", "field-id": 1}],
    }
    theirs = io.BytesIO()
    fastavro.writer(theirs, schema, ({"text": text} for text in TEXTS), codec=codec)
    assert read(theirs.getvalue()) == TEXTS


def bombs() -> dict[str, bytes]:
    """Blocks of a few kilobytes that hold 100 MB."""
    plain = bytes(100 << 20)
    deflate = zlib.compressobj(wbits=-15)
    return {
        "deflate": deflate.compress(plain) + deflate.flush(),
        "zstandard": pa.compress(plain, codec="zstd", asbytes=True),
        "bzip2": bz2.compress(plain),
        "xz": lzma.compress(plain),
        # Snappy compresses 20 times at most; this one only says so.
        "snappy": b"\xff\xff\xff\x7f" + bytes(5000),
    }


@pytest.mark.parametrize("codec", ["deflate", "zstandard", "bzip2", "xz", "snappy"])
def test_a_block_that_was_made_to_fill_the_memory(codec: str) -> None:
    program = f"""
import resource
from producer.iceberg.avro_codecs import CODECS
from tests.unit.producer.iceberg.test_avro_codecs import bombs
bomb = bombs()[{codec!r}]
assert len(bomb) < 200_000, len(bomb)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    CODECS[{codec!r}].decompress_limited(bomb[:20_000] if {codec!r} == "snappy" else bomb)
except ValueError as error:
    assert "holds more than" in str(error), error
else:
    raise AssertionError("it was decompressed")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("codec", [name for name in CODECS if name != "null"])
def test_a_block_that_is_cut(codec: str) -> None:
    compressed = CODECS[codec].compress(bytes(range(256)) * 100, None)
    for length in range(0, len(compressed), 7):
        with pytest.raises((ValueError, OSError, EOFError, lzma.LZMAError)):
            CODECS[codec].decompress_limited(compressed[:length])


def test_a_snappy_block_with_a_wrong_checksum() -> None:
    compressed = CODECS["snappy"].compress(b"something", None)
    with pytest.raises(ValueError, match="checksum"):
        CODECS["snappy"].decompress_limited(compressed[:-1] + bytes([compressed[-1] ^ 1]))


def test_an_unknown_codec_is_named() -> None:
    contents = written("null").replace(b"\x08null", b"\x08lzo4", 1)
    with pytest.raises(ValueError, match="lzo4"):
        read(contents)
