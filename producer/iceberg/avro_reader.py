"""Avro object container files, read from memory with PyIceberg's decoders.

PyIceberg's own ``AvroFile`` takes a cut-off file for a shorter one, and stops at two kinds of schema that other
engines write: a named type used twice (two uuid or decimal partition fields) and nanosecond timestamps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, cast

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import BinaryDecoder, StreamingBinaryDecoder, new_decoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.schema import Schema
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from producer.iceberg.avro_codecs import CODECS

_SCHEMA_KEY = "avro.schema"

#: Logical types that PyIceberg does not know; both are plain numbers to it.
_NANOSECONDS = frozenset({"timestamp-nanos", "local-timestamp-nanos"})


class AvroReader:
    """Reads files of one kind into records of one schema, by field id (https://avro.apache.org, container files).

    Safe to share between threads. Whatever is wrong with the bytes is raised as an exception of some kind:
    no file reads as a shorter one.
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
        # Most files of a table were written with the same schema, and resolving one costs as much as ten entries.
        self._resolve = lru_cache(maxsize=64)(self._resolve_file_schema)

    def read(self, contents: bytes) -> Iterator[Any]:
        """Records of the file in their order."""
        # The compiled decoder reads lengths on trust, past the end of a cut-off file: it gets whole blocks only.
        decoder = StreamingBinaryDecoder(contents)
        header = _read_header(contents, decoder)
        reader = self._resolve(header.meta[_SCHEMA_KEY])
        # The codec's name is in the header under its Avro name; a file without one is not compressed.
        name = header.meta.get(AVRO_CODEC_KEY, "null")
        if (codec := CODECS.get(name)) is None:
            raise ValueError(f"its codec {name!r} is none of {', '.join(CODECS)}")
        while decoder.tell() < len(contents):
            count = decoder.read_int()
            block = decoder.read_bytes()
            if decoder.read(SYNC_SIZE) != header.sync:
                raise ValueError("a block does not end in the file's sync marker")
            plain = codec.unpacked(block)
            if not 0 <= count <= len(plain):
                raise ValueError(f"a block of {len(plain)} bytes cannot hold {count} records")
            records = _Bounded(plain)
            for _ in range(count):
                yield reader.read(records)
            if records.tell() != len(plain):
                raise ValueError("a block does not end where its last record does")

    def _resolve_file_schema(self, avro_schema: str) -> Reader:
        file_schema = AvroSchemaConversion().avro_to_iceberg(_readable(json.loads(avro_schema), {}))
        return resolve_reader(file_schema, self._schema, self._types, self._enums)


def read_metadata(contents: bytes) -> Mapping[str, str]:
    """Key-value metadata in a file's header."""
    return _read_header(contents, StreamingBinaryDecoder(contents)).meta


class _Bounded(BinaryDecoder):
    """PyIceberg's compiled decoder, which reads lengths and counts on trust, kept within its bytes.

    Zeros follow the bytes: a number that is not ended in them ends there, and so do as many numbers as there are bytes.
    """

    def __init__(self, contents: bytes) -> None:
        self._size = len(contents)
        self._native = native = new_decoder(contents + bytes(len(contents) + 16))
        self._int, self.tell = native.read_int, native.tell  # type: ignore[method-assign]

    def tell(self) -> int:
        raise NotImplementedError  # the compiled one's

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


def _read_header(contents: bytes, decoder: BinaryDecoder) -> AvroFileHeader:
    if not contents.startswith(MAGIC):
        raise ValueError("it is not an Avro file")
    return cast(AvroFileHeader, construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder))


def _readable(node: Any, named: dict[str, Any]) -> Any:
    """Put a copy of the definition wherever a named type is referred to, and drop logical types PyIceberg lacks."""
    if isinstance(node, str):
        return named.get(node, node)
    if isinstance(node, list):
        return [_readable(branch, named) for branch in node]
    if not isinstance(node, dict):
        return node
    if node.get("logicalType") in _NANOSECONDS:
        return node["type"]
    if node["type"] == "record":
        return {**node, "fields": [{**field, "type": _readable(field["type"], named)} for field in node["fields"]]}
    if node["type"] == "fixed":
        named[node["name"]] = node
        if "namespace" in node:
            named[f"{node['namespace']}.{node['name']}"] = node
        return node
    parts = {key: _readable(node[key], named) for key in ("items", "values") if key in node}
    if not isinstance(node["type"], str):
        parts["type"] = _readable(node["type"], named)
    return {**node, **parts}
