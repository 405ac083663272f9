"""Avro object container files, made in memory with PyIceberg's encoders.

PyIceberg's own ``AvroOutputFile`` compresses each record alone and defines a named type again wherever it is used,
which other engines refuse to read (two uuid partition fields are enough).
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from io import BytesIO
from typing import Any, Final

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.resolver import construct_writer, resolve_writer
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from producer.iceberg.avro_codecs import CODECS

#: Bytes of records, before compression, that make a block.
BLOCK_SIZE = 64 * 1024


def _zigzag(integer: int) -> bytes:
    datum = (integer << 1) ^ (integer >> 63)
    encoded = bytearray()
    while datum & ~0x7F:
        encoded.append((datum & 0x7F) | 0x80)
        datum >>= 7
    encoded.append(datum)
    return bytes(encoded)


class _Encoder(BinaryEncoder):
    """PyIceberg's encoder with each number in one write, and small ones made beforehand.

    A manifest is mostly numbers: that of 110,000 entries takes half the time that a write for each byte takes.
    """

    _SMALL: Final = tuple(_zigzag(number) for number in range(1 << 12))

    def write_int(self, integer: int) -> None:
        """Write a variable-length zig-zag number."""
        self.write(self._SMALL[integer] if 0 <= integer < len(self._SMALL) else _zigzag(integer))


class AvroWriter:
    """Collects one file; nothing reaches storage before the caller puts :meth:`finish`'s bytes there.

    Args:
        name: of the root record.
        file_schema: what the file holds.
        record_schema: what the records hold, matched with the former by field id.
        metadata: key-value metadata besides the schema and codec.
        codec: its name and level, as :func:`producer.iceberg.table_properties.manifest_codec` gives them.
    """

    def __init__(
        self,
        name: str,
        file_schema: Schema,
        record_schema: Schema,
        metadata: Mapping[str, str],
        codec: tuple[str, int | None],
    ) -> None:
        self._codec, self._level = CODECS[codec[0]], codec[1]
        self._writer = resolve_writer(record_schema=record_schema, file_schema=file_schema)
        self._sync = os.urandom(SYNC_SIZE)
        self._file = BytesIO()
        self._encoder = _Encoder(self._file)
        self._new_block()
        schema = _name_once(AvroSchemaConversion().iceberg_to_avro(file_schema, schema_name=name), set())
        header = {**metadata, "avro.schema": json.dumps(schema), AVRO_CODEC_KEY: codec[0]}
        construct_writer(META_SCHEMA).write(self._encoder, AvroFileHeader(MAGIC, header, self._sync))

    @property
    def size(self) -> int:
        """Bytes of the file so far; the records of the current block are not in it."""
        return self._file.tell()

    def add(self, record: Record) -> None:
        """Append a record."""
        self._writer.write(self._block_encoder, record)
        self._count += 1
        if self._block.tell() >= BLOCK_SIZE:
            self._flush()

    def finish(self) -> bytes:
        """Contents of the whole file."""
        self._flush()
        return self._file.getvalue()

    def _new_block(self) -> None:
        self._block = BytesIO()
        self._block_encoder = _Encoder(self._block)
        self._count = 0

    def _flush(self) -> None:
        if not self._count:
            return
        block = self._block.getvalue()
        self._encoder.write_int(self._count)
        self._encoder.write_bytes(self._codec.pack(block, self._level))
        self._encoder.write(self._sync)
        self._new_block()


def put(io: FileIO, path: str, contents: bytes) -> None:
    """Write a file at once."""
    # Paths carry a random id: nothing is ever there already.
    with io.new_output(path).create(overwrite=True) as stream:
        stream.write(contents)


def _name_once(node: Any, names: set[str]) -> Any:
    """Give each named type a name of its own: Avro demands it, and PyIceberg reads no reference to the first."""
    if isinstance(node, list):
        return [_name_once(branch, names) for branch in node]
    if not isinstance(node, dict):
        return node
    parts = {key: _name_once(value, names) for key, value in node.items()}
    if node.get("type") in ("fixed", "record") and "name" in node:
        numbered = (f"{node['name']}_{number}" for number in itertools.count(2))
        parts["name"] = next(name for name in itertools.chain([node["name"]], numbered) if name not in names)
        names.add(parts["name"])
    return parts
