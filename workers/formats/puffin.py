"""Puffin files: the container that deletion vectors lie in (Puffin spec)."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import posixpath
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pydantic import ValidationError
from pyiceberg.io import FileIO, InputStream
from pyiceberg.table.puffin import MAGIC_BYTES, Footer, PuffinBlobMetadata

from producer.model.plan import VectorRef
from workers.formats.deletion_vector import DeletionVector
from workers.formats.format_model import NewFile
from workers.runtime.errors import CorruptFile

DELETION_VECTOR_V1: Final = "deletion-vector-v1"
REFERENCED_DATA_FILE: Final = "referenced-data-file"
CARDINALITY: Final = "cardinality"

#: The id of the column of row positions, which a deletion vector is computed from.
_POSITION_FIELD: Final = 2147483645
#: Footers of a few hundred vectors arrive with the first read.
_TAIL: Final = 64 * 1024
#: Files that a reader of vectors keeps open.
_MAX_OPEN: Final = 16
#: Payload size, flags, magic.
_TRAILER: Final = 12
_PAYLOAD_COMPRESSED: Final = 1


def read_footer(io: FileIO, path: str) -> Footer:
    """Read the footer of a Puffin file, and nothing of its blobs.

    Raises:
        CorruptFile: the file is missing, is not a whole Puffin file, or has a footer that cannot be read.
    """
    with _open(io, path) as file:
        return _footer(file)


def read_vector(io: FileIO, ref: VectorRef, data_file: str) -> DeletionVector:
    """Read the deletion vector that a manifest entry describes: of the file only the footer and the blob.

    Raises:
        CorruptFile: the file is missing or not a Puffin file, its footer does not list the vector of ``data_file`` at
            exactly that place, or the vector or its cardinality is wrong.
    """
    with vector_reader(io) as read:
        return read(ref, data_file)


@contextlib.contextmanager
def vector_reader(io: FileIO) -> Iterator[Callable[[VectorRef, str], DeletionVector]]:
    """Give a function that reads vectors as :func:`read_vector` does, and opens a file that several lie in once."""
    opened: dict[str, tuple[_Puffin, Footer]] = {}
    with contextlib.ExitStack() as files:

        def read(ref: VectorRef, data_file: str) -> DeletionVector:
            if ref.path not in opened:
                if len(opened) == _MAX_OPEN:
                    opened.clear()
                    files.close()
                file = files.enter_context(_open(io, ref.path))
                opened[ref.path] = file, _footer(file)
            file, footer = opened[ref.path]
            blob = _find(footer, ref, data_file)
            return DeletionVector.from_blob(file.read(blob.offset, blob.length), ref.path, ref.cardinality)

        yield read


class PuffinWriter(NewFile):
    """Writes deletion vectors into one new Puffin file, each as it comes; ends the file with the ``with`` block."""

    def __init__(self, io: FileIO, path: str) -> None:
        super().__init__(io, path)
        self._size = 0
        self._blobs: list[PuffinBlobMetadata] = []

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        super().__exit__(kind, *error)

    def add_vector(self, data_file: str, vector: DeletionVector) -> tuple[int, int]:
        """Write the deletion vector of a data file; return its offset and its size in bytes."""
        self._check_open()
        blob = vector.to_blob()
        if self._stream is None:
            self._write(MAGIC_BYTES)
        offset = self._size
        self._write(blob)
        # Snapshot id and sequence number are not known before the commit; -1 means that they are inherited.
        self._blobs.append(
            PuffinBlobMetadata(
                type=DELETION_VECTOR_V1,
                fields=[_POSITION_FIELD],
                snapshot_id=-1,
                sequence_number=-1,
                offset=offset,
                length=len(blob),
                properties={REFERENCED_DATA_FILE: data_file, CARDINALITY: str(vector.cardinality)},
            )
        )
        return offset, len(blob)

    def close(self) -> int:
        """Write the footer; return the size of the whole file in bytes, 0 when no vector came and there is no file."""
        if self._stream is not None and not self._closed:
            with self._discard_on_error():
                footer = Footer(blobs=self._blobs, properties={"created-by": _created_by()})
                payload = footer.model_dump_json(by_alias=True, exclude_none=True).encode()
                self._write(MAGIC_BYTES + payload + struct.pack("<ii", len(payload), 0) + MAGIC_BYTES)
                self._stream.close()
        self._closed = self._complete = True
        return self._size

    def _write(self, content: bytes) -> None:
        with self._discard_on_error():
            self._output().write(content)
        self._size += len(content)


@dataclass(slots=True)
class _Puffin:
    """An open file."""

    path: str
    stream: InputStream
    size: int
    #: The last bytes of the file, `_TAIL` of them or all, once they are read.
    tail: bytes = b""

    def read(self, offset: int, length: int) -> bytes:
        start = offset - (self.size - len(self.tail))
        if start >= 0:
            return self.tail[start : start + length]
        self.stream.seek(offset)
        content = self.stream.read(length)
        if len(content) != length:
            raise CorruptFile(self.path, f"{length} bytes were expected at offset {offset}, {len(content)} are there")
        return bytes(content)


@contextlib.contextmanager
def _open(io: FileIO, path: str) -> Iterator[_Puffin]:
    """Open a file, and check the magic at both ends."""
    try:
        stream = io.new_input(path).open()
    except FileNotFoundError as error:
        raise CorruptFile(path, "the file is missing") from error
    with contextlib.closing(stream):
        stream.seek(0, os.SEEK_END)
        size = stream.tell()
        file = _Puffin(path, stream, size)
        file.tail = file.read(max(0, size - _TAIL), min(size, _TAIL))
        head = file.read(0, 4)
        if head != MAGIC_BYTES:
            raise CorruptFile(path, f"the Puffin container is missing: the file starts with {head.hex() or 'nothing'}")
        if size < 4 + 4 + _TRAILER or file.tail[-4:] != MAGIC_BYTES:
            raise CorruptFile(path, "the Puffin container is incomplete: the file does not end with a footer")
        yield file


def _footer(file: _Puffin) -> Footer:
    length, flags = struct.unpack("<iI", file.tail[-_TRAILER:-4])
    start = file.size - _TRAILER - length
    if length < 0 or start < 8:
        raise CorruptFile(file.path, f"a Puffin footer of {length} bytes does not fit into {file.size} bytes")
    if flags & ~_PAYLOAD_COMPRESSED:
        raise CorruptFile(file.path, f"the Puffin footer has unknown flags: {flags:#010x}")
    content = file.read(start - 4, 4 + length)
    if content[:4] != MAGIC_BYTES:
        raise CorruptFile(file.path, "the Puffin footer does not start with its magic")
    payload = content[4:]
    try:
        if flags & _PAYLOAD_COMPRESSED:
            # One LZ4 frame.
            payload = pa.CompressedInputStream(pa.BufferReader(payload), "lz4").read()
        footer = Footer.model_validate_json(payload)
    except OSError as error:
        raise CorruptFile(file.path, f"the Puffin footer cannot be decompressed: {error}") from error
    except ValidationError as error:
        raise CorruptFile(file.path, f"the Puffin footer is wrong: {error.errors()[0]['msg']}") from error
    for blob in footer.blobs:
        if blob.offset < 4 or blob.length < 0 or blob.offset + blob.length > start - 4:
            raise CorruptFile(
                file.path, f"the blob at offset {blob.offset} with length {blob.length} lies outside of the file"
            )
    return footer


def _find(footer: Footer, ref: VectorRef, data_file: str) -> PuffinBlobMetadata:
    where = f"at offset {ref.offset} with length {ref.size}"
    blob = next((blob for blob in footer.blobs if (blob.offset, blob.length) == (ref.offset, ref.size)), None)
    if blob is None:
        raise CorruptFile(ref.path, f"the Puffin footer lists no blob {where}")
    if blob.type != DELETION_VECTOR_V1:
        raise CorruptFile(ref.path, f"the blob {where} is of type {blob.type}, not {DELETION_VECTOR_V1}")
    if blob.compression_codec is not None:
        raise CorruptFile(ref.path, f"the deletion vector {where} is compressed ({blob.compression_codec})")
    # Tables are moved by rewriting their metadata, while their Puffin files keep the old folder: the name decides.
    named = blob.properties.get(REFERENCED_DATA_FILE)
    if named is None or posixpath.basename(named) != posixpath.basename(data_file):
        raise CorruptFile(ref.path, f"the deletion vector {where} belongs to {named}, not to {data_file}")
    stated = blob.properties.get(CARDINALITY)
    if stated != str(ref.cardinality):
        raise CorruptFile(
            ref.path,
            f"the footer says that the deletion vector {where} has {stated} positions, its manifest {ref.cardinality}",
        )
    return blob


def _created_by() -> str:
    try:
        return f"icefleet {importlib.metadata.version('icefleet')}"
    except importlib.metadata.PackageNotFoundError:
        return "icefleet"
