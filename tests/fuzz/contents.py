"""What files hold, fuzzed: Parquet of each kind, Puffin, and the bitmaps in it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, StringType

from tests.fuzz.samples import POSITIONS, Samples
from tests.fuzz.target import Target
from workers.formats.deletion_vector import DeletionVector
from workers.formats.key_reader import KeyReader
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import read_vector
from workers.formats.row_reader import RowReader
from workers.model.delete_set import ContentFile, FileSplit, KeyColumn
from workers.runtime.errors import CorruptFile, DataError


def keys(samples: Samples, content: DataFileContent) -> Target:
    files = tuple(samples.of(content))
    columns = (KeyColumn(1, LongType()), KeyColumn(2, StringType()))

    def run(data: bytes) -> bool:
        reader = KeyReader(samples.io(x=data), columns, None, 1 << 20)
        file = ContentFile(0, "x", 1, 0, files[0].record_count, len(data))
        try:
            for batch in reader.read(FileSplit(file), required=content == DataFileContent.EQUALITY_DELETES):
                for array in batch.columns:
                    _sound(array)
        except (DataError, pa.ArrowMemoryError):  # the memory that a page claims is asked for, and not used
            return False
        return True

    name = "equality deletes" if content == DataFileContent.EQUALITY_DELETES else "keys of data"
    return Target(name, tuple(samples.files[file.path] for file in files), run, native=True)


def _sound(array: pa.Array) -> None:
    """Texts are bytes to whoever copies or compares them: what is in a file that is no text stays as it is."""
    bare = array.cast(pa.binary()) if pa.types.is_string(array.type) else array
    bare.validate(full=True)


def rows(samples: Samples) -> Target:
    files = tuple(samples.of(DataFileContent.DATA))
    fields: Schema = samples.table.schema()

    def run(data: bytes) -> bool:
        reader = RowReader(samples.io(x=data), fields, None, 1 << 20)
        try:
            file = ContentFile(0, "x", 1, 0, files[0].record_count, len(data))
            for batch in reader.read(FileSplit(file), np.array([1, 7])):
                for array in batch.columns:
                    _sound(array)
        except (DataError, pa.ArrowMemoryError):
            return False
        return True

    return Target("rows of data", tuple(samples.files[file.path] for file in files), run, native=True)


def position_deletes(samples: Samples) -> Target:
    files = tuple(samples.of(DataFileContent.POSITION_DELETES))

    def run(data: bytes) -> bool:
        try:
            for batch in read_position_deletes(samples.io(x=data), "x"):
                batch.validate(full=True)
        except (DataError, pa.ArrowMemoryError):
            return False
        return True

    return Target("position deletes", tuple(samples.files[file.path] for file in files), run, native=True)


def puffin(samples: Samples) -> Target:
    """The vector has a checksum: what is taken for it is it."""

    def run(data: bytes) -> bool:
        try:
            vector = read_vector(samples.io(**{samples.vector.path: data}), samples.vector, samples.target)
        except DataError:
            return False
        assert vector.positions().tolist() == list(POSITIONS)
        return True

    return Target("puffin", (samples.files[samples.vector.path],), run)


def vector() -> Target:
    """Blobs as they lie in files, with their checksum."""
    blobs = _blobs()
    known = {tuple(DeletionVector.from_blob(blob, "x").positions().tolist()) for blob in blobs}

    def run(data: bytes) -> bool:
        try:
            vector = DeletionVector.from_blob(data, "x")
        except CorruptFile:
            return False
        assert tuple(vector.positions().tolist()) in known
        return True

    return Target("vectors", blobs, run)


def roaring() -> Target:
    """What lies below the checksum, as somebody writes it who can count: only sound sets may come out."""

    def run(data: bytes) -> bool:
        body = b"\xd1\xd3\x39\x64" + data
        blob = struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        try:
            vector = DeletionVector.from_blob(blob, "x")
        except CorruptFile:
            return False
        positions = vector.positions()
        assert positions.size == vector.cardinality
        assert bool(np.all(positions[1:] > positions[:-1]))
        assert bool(vector.contains(positions).all())
        again = DeletionVector.from_blob(vector.to_blob(), "x").positions()
        assert np.array_equal(again, positions)
        assert np.array_equal(vector.union(DeletionVector.of(positions)).positions(), positions)
        return True

    return Target("roaring", tuple(blob[8:-4] for blob in _blobs()), run)


def _blobs() -> tuple[bytes, ...]:
    """Containers of each kind: arrays, runs, bitmaps; several keys."""
    random = np.random.default_rng(7)
    sets: Sequence[Any] = (
        POSITIONS,
        (),
        range(100_000),
        np.flatnonzero(random.random(70_000) < 0.4),
        [5, 1 << 32, (1 << 32) + 70_000, 3 << 32],
    )
    return tuple(DeletionVector.of(positions).to_blob() for positions in sets)
