"""What is fuzzed: everything that is read from outside, each with valid bytes and what may come of others.

A target takes any bytes. It returns when what it read is right or is refused with an error of ours, and raises
otherwise; whoever calls it looks after time, memory and crashes.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFileContent
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

from producer import catalog as catalogs
from producer.catalog import open_table
from producer.errors import Corrupt, IcefleetError, Newer, Refused
from producer.manifests import read_manifest, read_manifest_list
from producer.messages import Failure, JobId, Report, Request, Value
from producer.messenger import Messenger
from producer.orders import CommitOrder, UnitOrder, order_of, request_of
from producer.planner import plan
from producer.plans import Plan, Unit
from producer.staging import Attempt, CommitNote, PlanNote, Staged
from producer.versions import decode, encode
from tests.fuzz.samples import POSITIONS, Samples
from workers.errors import CorruptFile, DataError
from workers.keys import KeyReader
from workers.position_deletes import read_position_deletes
from workers.puffin import read_vector
from workers.rewriting import Input
from workers.rows import RowReader
from workers.unit import KeyColumn, KeyFile
from workers.vectors import DeletionVector

KINDS: tuple[type[Value], ...] = (Plan, Unit, Attempt, Staged, Failure, CommitNote, PlanNote, Report, Request)


@dataclass(frozen=True)
class Target:
    """One reader.

    Attributes:
        seeds: Valid bytes, which it must read.
        run: Reads bytes, and raises what is no error of ours; true when it took them for valid.
    """

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes], bool]
    #: Whether native code reads the bytes that may end its process.
    native: bool = False


def targets(samples: Samples) -> dict[str, Target]:
    """All targets by name."""
    made = [
        _messages(),
        _records(samples),
        _metadata(samples),
        _manifest_list(samples),
        _manifests(samples),
        _keys(samples, DataFileContent.EQUALITY_DELETES),
        _keys(samples, DataFileContent.DATA),
        _rows(samples),
        _position_deletes(samples),
        _puffin(samples),
        _vector(),
        _roaring(),
    ]
    return {target.name: target for target in made}


def _messages() -> Target:
    request = Request.new("db.t", where="p = 1", options={"min-input-files": "2"})
    sent: list[dict[str, Any]] = []
    with mock.patch.object(Messenger, "_send", lambda self, name, arguments, *rest: sent.append(arguments)):
        messenger = Messenger(SimpleNamespace())  # type: ignore[arg-type]
        messenger.plan(request)
        messenger.commit(request.job, "s3://lake/t")
    sent.append({"table": "db.t", "partition": "p=1", "job": request.job, "round": 0, "unit": 3})

    def run(data: bytes) -> bool:
        try:
            arguments = json.loads(data)
        except (ValueError, RecursionError):
            return False  # kombu's to refuse
        if not isinstance(arguments, dict):
            return False  # Celery's
        taken = False
        for read in (request_of, lambda a: order_of(UnitOrder, a), lambda a: order_of(CommitOrder, a)):
            try:
                order = read(arguments)
            except Refused:
                continue
            assert JobId.parse(order.job).table == order.table
            taken = True
        return taken

    return Target("messages", tuple(json.dumps(arguments).encode() for arguments in sent), run)


def _records(samples: Samples) -> Target:
    request = Request.new("db.t")
    planned = plan(samples.table, request, unit_bytes=1 << 28)
    header = planned.units[0].header
    values: list[Value] = [planned.plan, planned.units[0], request]
    values += [
        Attempt(unit=header.number, number=0, token="t", host="h", started=1.5, paths=("a", "b"), journal="j", tasks=2),
        Staged(unit=0, attempt=0, scopes=planned.units[0].scopes, named={"x": ("y",)}, inputs=("a",)),
        CommitNote(token="t", started=2.0, head=5, snapshots={"a": 1}),
        PlanNote(token="t", units=3),
        Failure(unit=0, partition="p", reason="r"),
        Report(job=request.job, table="db.t", status="failed", failures=(Failure(unit=0, partition="p", reason="r"),)),
    ]

    def run(data: bytes) -> bool:
        taken = False
        for kind in KINDS:
            try:
                value = decode(data, kind, "x.json")
            except (Corrupt, Newer):
                continue
            assert decode(encode(value), kind, "x.json") == value
            taken = True
        return taken

    return Target("records", tuple(encode(value).encode() for value in values), run)


def _planned(table: Table) -> None:
    plan(table, Request.new("db.t"), unit_bytes=1 << 28)


def _metadata(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        io = samples.io(**{samples.table.metadata_location: data})

        def load(name: str) -> Table:
            metadata = FromInputFile.table_metadata(io.new_input(samples.table.metadata_location))
            return Table(("db", "t"), metadata, samples.table.metadata_location, io, samples.table.catalog)

        opened = SimpleNamespace(load_table=load)
        with mock.patch.object(catalogs, "load_catalog", return_value=opened):
            try:
                _planned(open_table("default", "db.t"))
            except IcefleetError:
                return False
        return True

    return Target("metadata", (samples.files[samples.table.metadata_location],), run)


def _manifest_list(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        io = samples.io(**{samples.manifest_list: data})
        snapshot = samples.table.current_snapshot()
        assert snapshot is not None
        try:
            read_manifest_list(io, snapshot)
            _planned(Table(("db", "t"), samples.table.metadata, "", io, samples.table.catalog))
        except IcefleetError:
            return False
        return True

    return Target("manifest list", (samples.files[samples.manifest_list],), run)


def _manifests(samples: Samples) -> Target:
    def run(data: bytes) -> bool:
        taken = False
        for manifest in samples.manifests:
            io = samples.io(**{manifest.manifest_path: data})
            try:
                read_manifest(io, manifest)
                _planned(Table(("db", "t"), samples.table.metadata, "", io, samples.table.catalog))
            except IcefleetError:
                continue
            taken = True
        return taken

    return Target("manifests", tuple(samples.files[manifest.manifest_path] for manifest in samples.manifests), run)


def _keys(samples: Samples, content: DataFileContent) -> Target:
    files = tuple(samples.of(content))
    columns = (KeyColumn(1, LongType()), KeyColumn(2, StringType()))

    def run(data: bytes) -> bool:
        reader = KeyReader(samples.io(x=data), columns, None, 1 << 20)
        file = KeyFile(0, "x", 1, 0, files[0].record_count, len(data))
        try:
            for batch in reader.read(file, required=content == DataFileContent.EQUALITY_DELETES):
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


def _rows(samples: Samples) -> Target:
    files = tuple(samples.of(DataFileContent.DATA))
    fields: Schema = samples.table.schema()

    def run(data: bytes) -> bool:
        reader = RowReader(samples.io(x=data), fields, None, 1 << 20)
        try:
            for batch in reader.read(Input(0, "x", 1, 0, files[0].record_count, len(data)), np.array([1, 7])):
                for array in batch.columns:
                    _sound(array)
        except (DataError, pa.ArrowMemoryError):
            return False
        return True

    return Target("rows of data", tuple(samples.files[file.path] for file in files), run, native=True)


def _position_deletes(samples: Samples) -> Target:
    files = tuple(samples.of(DataFileContent.POSITION_DELETES))

    def run(data: bytes) -> bool:
        try:
            for batch in read_position_deletes(samples.io(x=data), "x"):
                batch.validate(full=True)
        except (DataError, pa.ArrowMemoryError):
            return False
        return True

    return Target("position deletes", tuple(samples.files[file.path] for file in files), run, native=True)


def _puffin(samples: Samples) -> Target:
    """The vector has a checksum: what is taken for it is it."""

    def run(data: bytes) -> bool:
        try:
            vector = read_vector(samples.io(**{samples.vector.path: data}), samples.vector, samples.target)
        except DataError:
            return False
        assert vector.positions().tolist() == list(POSITIONS)
        return True

    return Target("puffin", (samples.files[samples.vector.path],), run)


def _vector() -> Target:
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


def _roaring() -> Target:
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
