"""Avro container files that are not whole: an exception each time, never a crash and never a shorter file."""

from __future__ import annotations

import itertools
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile, PartitionFieldSummary
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from producer.iceberg.avro import AvroReader, AvroWriter
from tasks.testing import StreamTable, local_catalog

READER = AvroReader(
    MANIFEST_LIST_FILE_SCHEMAS[3],
    types={-1: ManifestFile, 508: PartitionFieldSummary},
    enums={517: ManifestContent},
)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A manifest list of three manifests."""
    catalog = local_catalog(tmp_path_factory.mktemp("avro"))
    stream = StreamTable.create(catalog, "db.t", pa.schema([("id", pa.int64())]))
    for number in range(3):
        stream.append(pa.table({"id": [number]}))
    snapshot = stream.table.current_snapshot()
    assert snapshot is not None
    catalog.close()
    return Path(snapshot.manifest_list.removeprefix("file://")).read_bytes()


def test_a_file_that_is_cut_anywhere(contents: bytes) -> None:
    sync = contents[-16:]
    header = contents.index(sync) + len(sync)
    for length in range(len(contents)):
        if length == header:
            continue  # a whole file without records
        with pytest.raises((EOFError, ValueError)):
            list(READER.read(contents[:length]))
    assert len(list(READER.read(contents))) == 3


def test_a_block_that_goes_on_after_its_last_record(contents: bytes) -> None:
    """Its record count is lowered by one: zigzag 6 becomes 4."""
    start = contents.index(contents[-16:]) + 16
    assert contents[start] == 6
    with pytest.raises(ValueError, match="last record"):
        list(READER.read(contents[:start] + b"\x04" + contents[start + 1 :]))


@pytest.mark.parametrize("magnitude", range(0, 64, 7))
def test_numbers_are_written_as_pyiceberg_reads_them(magnitude: int) -> None:
    """Those around each length of the encoding, of both signs."""
    schema = Schema(NestedField(1, "number", LongType(), required=True))
    most = (1 << 63) - 1
    numbers = [min(max(sign * (1 << magnitude) + by, -most - 1), most) for sign in (-1, 1) for by in range(-2, 3)]
    writer = AvroWriter("numbers", schema, schema, {}, ("null", None))
    for number in numbers:
        writer.add(Record(number))
    read = AvroReader(schema, types={}, enums={}).read(writer.finish())
    assert [record[0] for record in read] == numbers


def test_lengths_that_lead_out_of_a_block(contents: bytes) -> None:
    """PyIceberg's compiled decoder follows them, until the process dies."""
    sync = contents[-16:]
    start = contents.index(sync) + 16
    decoder = StreamingBinaryDecoder(contents[start:])
    count, block = decoder.read_int(), decoder.read_bytes()
    plain = zlib.decompress(block, -15)
    refused = 0
    for at, huge in itertools.product(range(len(plain)), map(_long, (1 << 24, 1 << 31, 1 << 40))):
        deflated = zlib.compress(plain[:at] + huge + plain[at + len(huge) :])[2:-4]
        try:
            list(READER.read(contents[:start] + _long(count) + _long(len(deflated)) + deflated + sync))
        except Exception:
            refused += 1
    assert refused > len(plain)


def test_blocks_that_claim_more_than_they_can_hold(contents: bytes) -> None:
    start = contents.index(contents[-16:]) + 16
    bomb = zlib.compress(bytes(200 << 20), 9)[2:-4]
    for count, block, word in (
        (1 << 60, zlib.compress(b"\x02" * 64)[2:-4], "cannot hold"),
        (-5, zlib.compress(b"")[2:-4], "cannot hold"),
        (1, bomb, "holds more than"),
        (1, bomb[:100], "ends before its end"),
    ):
        with pytest.raises(ValueError, match=word):
            list(READER.read(contents[:start] + _long(count) + _long(len(block)) + block + contents[-16:]))


def _long(value: int) -> bytes:
    """As Avro writes whole numbers."""
    zigzag, out = (value << 1) ^ (value >> 63), bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes(out) + bytes([zigzag])
