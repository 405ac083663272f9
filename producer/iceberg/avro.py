"""Read and write Avro object container files in memory, with PyIceberg's decoders and encoders.

PyIceberg's own ``AvroFile`` reads a truncated file as a shorter one, and rejects two kinds of schema that other engines
write: a named type that is used twice (two uuid or decimal partition fields) and nanosecond timestamps. Its
``AvroOutputFile`` compresses each record alone and defines a named type again wherever it is used, which other engines
refuse to read.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader, resolve_writer
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from producer.iceberg.avro_codecs import CODECS

_SCHEMA_KEY: Final = "avro.schema"

#: Logical types that PyIceberg does not know; it reads both as plain numbers.
_NANOSECONDS: Final = frozenset({"timestamp-nanos", "local-timestamp-nanos"})

#: Uncompressed bytes of records that make a block.
BLOCK_SIZE: Final = 64 * 1024


class AvroReader:
    """Reads files of one kind into records of one schema, by field id (https://avro.apache.org, container files).

    Threads may share a reader. Damaged bytes always raise an exception: a file never reads as a shorter one.

    ``types`` are the classes of the records by the id of the field that holds them (-1 is the root), and ``enums`` the
    enumerations of integer fields by field id.
    """

    def __init__(
        self,
        schema: Schema,
        types: Mapping[int, Callable[..., StructProtocol]],
        enums: Mapping[int, Callable[..., Enum]],
    ) -> None:
        self._schema = schema
        self._types = dict(types)
        self._enums = dict(enums)
        # Most files of a table have the same schema, and resolving it costs as much as reading ten entries.
        self._resolve = lru_cache(maxsize=64)(self._resolve_file_schema)

    def read(self, contents: bytes) -> Iterator[Any]:
        """Yield the records of a file in order."""
        # The compiled decoder does not check lengths and reads past the end of a truncated file: it gets whole blocks.
        decoder = StreamingBinaryDecoder(contents)
        if not contents.startswith(MAGIC):
            raise ValueError("it is not an Avro file")
        header: AvroFileHeader = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
        reader = self._resolve(header.meta[_SCHEMA_KEY])
        # The header has the codec's Avro name; a file without one is not compressed.
        name = header.meta.get(AVRO_CODEC_KEY, "null")
        if (codec := CODECS.get(name)) is None:
            raise ValueError(f"its codec {name!r} is none of {', '.join(CODECS)}")
        while decoder.tell() < len(contents):
            count = decoder.read_int()
            block = decoder.read_bytes()
            if decoder.read(SYNC_SIZE) != header.sync:
                raise ValueError("a block does not end in the file's sync marker")
            data = codec.decompress_limited(block)
            if not 0 <= count <= len(data):
                raise ValueError(f"a block of {len(data)} bytes cannot hold {count} records")
            records = _BoundedDecoder(data)
            for _ in range(count):
                yield reader.read(records)
            if records.tell() != len(data):
                raise ValueError("a block does not end where its last record does")

    def _resolve_file_schema(self, avro_schema: str) -> Reader:
        file_schema = AvroSchemaConversion().avro_to_iceberg(_inline_named_types(json.loads(avro_schema), {}))
        return resolve_reader(file_schema, self._schema, self._types, self._enums)


class AvroWriter:
    """Builds one file in memory; the caller writes the bytes of :meth:`finish` to storage.

    ``name`` is that of the root record. Fields of the records that are added are matched with those of the file by id.
    ``metadata`` lacks the schema and the codec; name and level of the latter come from
    :func:`producer.iceberg.table_properties.manifest_codec`.
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
        schema = _unique_names(AvroSchemaConversion().iceberg_to_avro(file_schema, schema_name=name), set())
        header = {**metadata, _SCHEMA_KEY: json.dumps(schema), AVRO_CODEC_KEY: codec[0]}
        construct_writer(META_SCHEMA).write(self._encoder, AvroFileHeader(MAGIC, header, self._sync))

    @property
    def size(self) -> int:
        """Bytes of the file so far, without the current block."""
        return self._file.tell()

    def add(self, record: Record) -> None:
        """Append a record."""
        self._writer.write(self._block_encoder, record)
        self._count += 1
        if self._block.tell() >= BLOCK_SIZE:
            self._flush()

    def finish(self) -> bytes:
        """Return the contents of the whole file."""
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
        self._encoder.write_bytes(self._codec.compress(block, self._level))
        self._encoder.write(self._sync)
        self._new_block()


class _BoundedDecoder(BinaryDecoder):
    """PyIceberg's compiled decoder with the bounds checks on lengths and counts that it lacks.

    Zeros follow the bytes: an unfinished number ends in them, and so do as many numbers as there are bytes.
    """

    def __init__(self, contents: bytes) -> None:
        self._size = len(contents)
        self._native = native = new_decoder(contents + bytes(len(contents) + 16))
        self._int, self.tell = native.read_int, native.tell  # type: ignore[method-assign]

    def tell(self) -> int:
        raise NotImplementedError  # __init__ sets the compiled decoder's

    def _checked(self, length: int) -> int:
        if not 0 <= length <= self._size - self.tell():
            raise EOFError(f"{length} bytes or values were expected where {self._size - self.tell()} bytes are left")
        return length

    def read_int(self) -> int:
        value: int = self._int()
        if self.tell() > self._size:
            raise EOFError("a record ends after its block")
        return value

    def read(self, n: int) -> bytes:
        return self._native.read(self._checked(n)) if n else b""

    def skip(self, n: int) -> None:
        self._native.skip(self._checked(n))

    def read_ints(self, count: int) -> tuple[int, ...]:
        values: tuple[int, ...] = self._native.read_ints(self._checked(count))
        self._checked(0)
        return values

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        for _ in range(self._checked(count)):
            key = self.read_int()
            dest[key] = self.read_bytes()


def _zigzag(integer: int) -> bytes:
    datum = (integer << 1) ^ (integer >> 63)
    encoded = bytearray()
    while datum & ~0x7F:
        encoded.append((datum & 0x7F) | 0x80)
        datum >>= 7
    encoded.append(datum)
    return bytes(encoded)


class _Encoder(BinaryEncoder):
    """PyIceberg's encoder with one write per number instead of one per byte, and small numbers encoded beforehand.

    A manifest is mostly numbers: this halves the time for one of 110,000 entries.
    """

    _SMALL: Final = tuple(_zigzag(number) for number in range(1 << 12))

    def write_int(self, integer: int) -> None:
        """Write a number with variable-length zig-zag coding."""
        self.write(self._SMALL[integer] if 0 <= integer < len(self._SMALL) else _zigzag(integer))


def _inline_named_types(node: Any, named: dict[str, Any]) -> Any:
    """Replace each reference to a named type by its definition, and drop logical types that PyIceberg lacks."""
    if isinstance(node, str):
        return named.get(node, node)
    if isinstance(node, list):
        return [_inline_named_types(branch, named) for branch in node]
    if not isinstance(node, dict):
        return node
    if node.get("logicalType") in _NANOSECONDS:
        return node["type"]
    if node["type"] == "record":
        return {
            **node,
            "fields": [{**field, "type": _inline_named_types(field["type"], named)} for field in node["fields"]],
        }
    if node["type"] == "fixed":
        named[node["name"]] = node
        if "namespace" in node:
            named[f"{node['namespace']}.{node['name']}"] = node
        return node
    parts = {key: _inline_named_types(node[key], named) for key in ("items", "values") if key in node}
    if not isinstance(node["type"], str):
        parts["type"] = _inline_named_types(node["type"], named)
    return {**node, **parts}


def _unique_names(node: Any, names: set[str]) -> Any:
    """Give each named type a unique name: Avro demands it, and PyIceberg cannot read a reference to a named type."""
    if isinstance(node, list):
        return [_unique_names(branch, names) for branch in node]
    if not isinstance(node, dict):
        return node
    parts = {key: _unique_names(value, names) for key, value in node.items()}
    if node.get("type") in ("fixed", "record") and "name" in node:
        numbered = (f"{node['name']}_{number}" for number in itertools.count(2))
        parts["name"] = next(name for name in itertools.chain([node["name"]], numbered) if name not in names)
        names.add(parts["name"])
    return parts
