"""Manifests and manifest lists: written, read again by us, by fastavro and by PyIceberg."""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from producer.common.errors import Corrupt, Refused
from producer.iceberg.manifest_entry import (
    FILE_PATH_ID,
    LiveFile,
    NewFile,
    added_entry,
    deleted_entry,
    existing_entry,
    new_data_file,
)
from producer.iceberg.manifest_reader import (
    ManifestCache,
    first_row_id,
    pause_gc,
    read_manifest,
    read_manifest_list,
    read_manifests,
)
from producer.iceberg.manifest_writer import write_manifest_list, write_manifests

SNAPSHOT = 77
SEQUENCE = 9

#: Every type that a partition may have, two uuids, fixeds and decimals of one kind among them, and a value.
PARTITIONS: list[tuple[IcebergType, Any]] = [
    (BooleanType(), True),
    (IntegerType(), -3),
    (LongType(), 2**50),
    (FloatType(), 1.5),
    (DoubleType(), -0.0),
    (DateType(), -1),
    (TimeType(), 1),
    (TimestampType(), -1),
    (TimestamptzType(), 2**50),
    (TimestampNanoType(), 2**60 + 1),
    (StringType(), "à"),
    (UUIDType(), uuid.UUID(int=5)),
    (UUIDType(), uuid.UUID(int=2**127)),
    (FixedType(4), b"\x00\x01\xff\xfe"),
    (FixedType(4), b"abcd"),
    (BinaryType(), b""),
    (DecimalType(9, 2), Decimal("-1.20")),
    (DecimalType(9, 2), Decimal("0.00")),
    (DecimalType(38, 4), Decimal("1.0000")),
]


def table(version: int, *kinds: IcebergType, **properties: str) -> TableMetadata:
    """A table with a column and an identity partition field for each type."""
    schema = Schema(*(NestedField(n, f"c{n}", kind, required=False) for n, kind in enumerate(kinds, 1)), schema_id=3)
    spec = PartitionSpec(
        *(PartitionField(n, 999 + n, IdentityTransform(), f"c{n}") for n in range(1, len(kinds) + 1)), spec_id=4
    )
    return TableMetadataUtil.parse_obj(
        {
            "format-version": version,
            "location": "file:///t",
            "last-column-id": len(kinds),
            "schemas": [schema.model_dump()],
            "current-schema-id": 3,
            "partition-specs": [spec.model_dump()],
            "default-spec-id": 4,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "properties": properties,
        }
    )


def data(path: str = "a", partition: Record | None = None, **fields: Any) -> DataFile:
    values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": partition or Record(),
        "record_count": 10,
        "file_size_in_bytes": 100,
    }
    return new_data_file(**{**values, **fields})


def new(file: DataFile, sequence_number: int | None = None) -> ManifestEntry:
    return added_entry(NewFile(file, 4, sequence_number), SNAPSHOT)


@pytest.fixture
def io() -> PyArrowFileIO:
    return PyArrowFileIO()


@pytest.fixture
def paths(tmp_path: Path) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"file://{tmp_path}/m{next(numbers)}.avro"


@pytest.fixture
def write(io: PyArrowFileIO, paths: Callable[[], str]) -> Callable[..., list[ManifestFile]]:
    def write(
        metadata: TableMetadata, entries: Iterable[ManifestEntry], content: ManifestContent = ManifestContent.DATA
    ) -> list[ManifestFile]:
        return list(write_manifests(io, paths, metadata, metadata.spec(), content, SNAPSHOT, SEQUENCE, entries))

    return write


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def avro(path: str) -> tuple[list[Any], dict[str, str]]:
    with local(path).open("rb") as stream:
        reader = fastavro.reader(stream)
        return list(reader), dict(reader.metadata)


def avro_header(path: str) -> dict[str, str]:
    with local(path).open("rb") as stream:
        return dict(fastavro.reader(stream).metadata)


@pytest.mark.parametrize("version", [2, 3])
def test_partition_tuples_of_every_type_come_back(
    version: int, io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]
) -> None:
    kinds = [kind for kind, _ in PARTITIONS if version == 3 or not isinstance(kind, TimestampNanoType)]
    values = [value for kind, value in PARTITIONS if version == 3 or not isinstance(kind, TimestampNanoType)]
    full, empty = Record(*values), Record(*(None for _ in kinds))
    [manifest] = write(table(version, *kinds), [new(data("a", full)), new(data("b", empty))])
    read = read_manifest(io, manifest)
    assert [file.partition for file in read] == [full, empty]
    assert [repr(file.partition) for file in read] == [repr(full), repr(empty)]
    assert [file.partition_key for file in read] == [
        NewFile(data("", full), 4).partition_key,
        (4, (None,) * len(kinds)),
    ]
    # Other readers agree that the file is one, named types included.
    assert len(avro(manifest.manifest_path)[0]) == 2
    if version == 2:
        assert [entry.data_file.partition for entry in manifest.fetch_manifest_entry(io)] == [full, empty]


@pytest.mark.parametrize("version", [2, 3])
def test_key_value_metadata(version: int, write: Callable[..., list[ManifestFile]]) -> None:
    metadata = table(version, LongType())
    [manifest] = write(metadata, [new(data(partition=Record(1)))])
    _, header = avro(manifest.manifest_path)
    assert header["format-version"] == str(version)
    assert header["content"] == "data"
    assert header["partition-spec-id"] == "4"
    assert json.loads(header["partition-spec"]) == [
        {"source-id": 1, "field-id": 1000, "transform": "identity", "name": "c1"}
    ]
    assert header["schema-id"] == "3"
    assert json.loads(header["schema"])["schema-id"] == 3
    assert header["avro.codec"] == "deflate"


def test_metadata_of_delete_manifests(write: Callable[..., list[ManifestFile]]) -> None:
    delete = data(content=DataFileContent.EQUALITY_DELETES, equality_ids=[2, 1])
    [manifest] = write(table(2), [new(delete)], ManifestContent.DELETES)
    [entry], header = avro(manifest.manifest_path)
    assert header["content"] == "deletes"
    assert entry["data_file"]["content"] == 2
    assert entry["data_file"]["equality_ids"] == [2, 1]
    # The reference implementation takes no long for them.
    schema = json.loads(header["avro.schema"])
    [file_type] = [field["type"] for field in schema["fields"] if field["name"] == "data_file"]
    [ids] = [field["type"] for field in file_type["fields"] if field["name"] == "equality_ids"]
    assert ids[1]["items"] == "int"


@pytest.mark.parametrize(
    ("codec", "avro_codec"),
    [("zstd", "zstandard"), ("uncompressed", "null"), ("GZIP", "deflate"), ("snappy", "snappy")],
)
def test_codec_is_the_tables(
    codec: str, avro_codec: str, io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]
) -> None:
    metadata = table(2, **{"write.manifest.compression-codec": codec})
    [manifest] = write(metadata, [new(data())])
    assert avro_header(manifest.manifest_path)["avro.codec"] == avro_codec
    assert [file.path for file in read_manifest(io, manifest)] == ["a"]


def test_an_unknown_codec_is_refused(write: Callable[..., list[ManifestFile]]) -> None:
    with pytest.raises(Refused, match="lzo"):
        write(table(2, **{"write.manifest.compression-codec": "lzo"}), [new(data())])


def test_the_codec_of_avro_data_files_is_none_of_manifests(write: Callable[..., list[ManifestFile]]) -> None:
    [manifest] = write(table(2, **{"write.avro.compression-codec": "snappy"}), [new(data())])
    assert avro_header(manifest.manifest_path)["avro.codec"] == "deflate"


def test_a_level_is_the_tables(write: Callable[..., list[ManifestFile]]) -> None:
    sizes = []
    for level in ("1", "19"):
        properties = {"write.manifest.compression-codec": "zstd", "write.manifest.compression-level": level}
        [manifest] = write(table(2, **properties), (new(data(f"{n * n}" * 9)) for n in range(300)))
        sizes.append(manifest.manifest_length)
    assert sizes[0] > sizes[1]


def test_statuses_and_the_numbers_they_carry(io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]) -> None:
    metadata = table(2)
    [before] = write(metadata, [new(data("a")), new(data("b"), 5)])
    a, b = read_manifest(io, before)
    assert (a.sequence_number, a.file_sequence_number, a.snapshot_id) == (SEQUENCE, SEQUENCE, SNAPSHOT)
    assert (b.sequence_number, b.file_sequence_number, b.snapshot_id) == (5, SEQUENCE, SNAPSHOT)
    [after] = list(
        write_manifests(
            io,
            lambda: f"{before.manifest_path}-after",
            metadata,
            metadata.spec(),
            ManifestContent.DATA,
            SNAPSHOT + 1,
            SEQUENCE + 1,
            [existing_entry(a), deleted_entry(b, SNAPSHOT + 1)],
        )
    )
    entries, _ = avro(after.manifest_path)
    assert [(e["status"], e["snapshot_id"], e["sequence_number"], e["file_sequence_number"]) for e in entries] == [
        (0, SNAPSHOT, SEQUENCE, SEQUENCE),
        (2, SNAPSHOT + 1, 5, SEQUENCE),
    ]
    first, _ = avro(before.manifest_path)
    assert [(e["status"], e["snapshot_id"], e["sequence_number"], e["file_sequence_number"]) for e in first] == [
        (1, SNAPSHOT, None, None),
        (1, SNAPSHOT, 5, None),
    ]
    assert [file.path for file in read_manifest(io, after)] == ["a"]
    assert (before.min_sequence_number, after.min_sequence_number) == (5, SEQUENCE)
    counts = (after.added_files_count, after.existing_files_count, after.deleted_files_count)
    assert counts == (0, 1, 1)
    assert (after.added_rows_count, after.existing_rows_count, after.deleted_rows_count) == (0, 10, 10)
    assert after.manifest_length == local(after.manifest_path).stat().st_size


def test_the_lowest_sequence_number_without_live_files_is_the_snapshots(
    io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]
) -> None:
    [before] = write(table(2), [new(data("a"), 2)])
    [gone] = write(table(2), [deleted_entry(file, SNAPSHOT) for file in read_manifest(io, before)])
    assert gone.min_sequence_number == SEQUENCE


def test_all_columns_of_version_3_come_back(io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]) -> None:
    vector = data(
        "v.puffin",
        content=DataFileContent.POSITION_DELETES,
        file_format=FileFormat.PUFFIN,
        referenced_data_file="a",
        content_offset=4,
        content_size_in_bytes=42,
    )
    [manifest] = write(table(3), [new(vector)], ManifestContent.DELETES)
    [file] = read_manifest(io, manifest)
    assert file.is_vector
    assert file.identity == ("v.puffin", 4)
    assert (file.referenced_data_file, file.content_offset, file.content_size) == ("a", 4, 42)
    assert file.first_row_id is None


@pytest.mark.parametrize("version", [2, 3])
def test_metrics_come_back(version: int, io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]) -> None:
    fields: dict[str, Any] = {
        "column_sizes": {1: 8},
        "value_counts": {1: 10},
        "null_value_counts": {1: 2},
        "nan_value_counts": {1: 1},
        "lower_bounds": {1: b"\x00"},
        "upper_bounds": {1: b"\xff"},
        "key_metadata": b"key",
        "split_offsets": [4, 100],
        "sort_order_id": 1,
    }
    [manifest] = write(table(version), [new(data(**fields))])
    [file] = read_manifest(io, manifest)
    for name, value in fields.items():
        assert getattr(file.data_file, name) == value, name
    assert (file.lower_bounds, file.upper_bounds) == ({1: b"\x00"}, {1: b"\xff"})
    assert (file.data_file.value_counts, file.null_value_counts, file.data_file.nan_value_counts) == (
        {1: 10},
        {1: 2},
        {1: 1},
    )


def bounds(lower: bytes, upper: bytes) -> dict[str, dict[int, bytes]]:
    return {"lower_bounds": {FILE_PATH_ID: lower}, "upper_bounds": {FILE_PATH_ID: upper}}


@pytest.mark.parametrize(
    ("fields", "referenced"),
    [
        ({"referenced_data_file": "a"}, "a"),
        (bounds(b"s3://lake/db/b.parquet", b"s3://lake/db/b.parquet"), "s3://lake/db/b.parquet"),
        (bounds(b"s3://lake/db/b.parquet", b"s3://lake/db/c.parquet"), None),
        (bounds(b"s3://lake/db/b.p", b"s3://lake/db/b.p"), None),
        (bounds(b"s3://x/b.parquet", b"s3://x/b.parquet"), None),
        (bounds("s3://lake/ü".encode()[:-1], "s3://lake/ü".encode()[:-1]), None),
        ({}, None),
    ],
)
def test_which_data_file_a_position_delete_file_is_for(
    fields: dict[str, Any], referenced: str | None, io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]
) -> None:
    delete = data(content=DataFileContent.POSITION_DELETES, **fields)
    [manifest] = write(table(2), [new(delete)], ManifestContent.DELETES)
    assert read_manifest(io, manifest)[0].referenced_data_file == referenced


def test_partition_summaries(write: Callable[..., list[ManifestFile]]) -> None:
    metadata = table(2, DoubleType(), StringType(), LongType())
    partitions = [(math.nan, "b", None), (-0.0, "é", None), (0.0, None, None), (0.0, "b", None)]
    [manifest] = write(metadata, [new(data(str(n), Record(*p))) for n, p in enumerate(partitions)])
    double, string, null = manifest.partitions or []
    assert (double.contains_null, double.contains_nan) == (False, True)
    assert (double.lower_bound, double.upper_bound) == (to_bytes(DoubleType(), -0.0), to_bytes(DoubleType(), 0.0))
    assert (string.contains_null, string.contains_nan) == (True, False)
    assert (string.lower_bound, string.upper_bound) == (b"b", "é".encode())
    assert (null.contains_null, null.lower_bound, null.upper_bound) == (True, None, None)


@pytest.mark.parametrize(
    ("numbers", "summarized"),
    [
        ([1, 2**127 - 1], False),  # the second half of one has its high bit set
        ([1, 2**127], False),
        ([1, 2**63], False),
        ([1, 2**64 + 1, 2**126], True),
        ([2**127, 2**128 - 2**64], True),
        ([2**128 - 1], True),
    ],
)
def test_summaries_are_left_out_where_readers_order_uuids_in_different_ways(
    numbers: list[int], summarized: bool, write: Callable[..., list[ManifestFile]]
) -> None:
    """All of them: a summary without bounds says that there are only nulls."""
    uuids = [uuid.UUID(int=number) for number in numbers]
    partitions = [(None, 1), *((value, 1) for value in uuids)]
    metadata = table(2, UUIDType(), LongType())
    [manifest] = write(metadata, [new(data(str(n), Record(*p))) for n, p in enumerate(partitions)])
    if not summarized:
        assert manifest.partitions is None
        return
    first, second = manifest.partitions or []
    assert (first.contains_null, first.lower_bound, first.upper_bound) == (True, uuids[0].bytes, uuids[-1].bytes)
    assert second.lower_bound == to_bytes(LongType(), 1)


def test_manifests_are_cut_at_the_target_size(io: PyArrowFileIO, write: Callable[..., list[ManifestFile]]) -> None:
    metadata = table(
        2, **{"commit.manifest.target-size-bytes": "1000", "write.manifest.compression-codec": "uncompressed"}
    )
    manifests = write(metadata, (new(data(f"{n:04d}" + "x" * 300)) for n in range(1000)))
    assert len(manifests) > 3
    files = list(read_manifests(io, manifests))
    assert [int(file.path[:4]) for file in files] == list(range(1000))
    assert write(metadata, []) == []


@pytest.mark.parametrize(
    ("version", "content", "entry", "complaint"),
    [
        (2, ManifestContent.DELETES, new(data()), "never share"),
        (2, ManifestContent.DATA, new(data(content=DataFileContent.EQUALITY_DELETES)), "never share"),
        (2, ManifestContent.DATA, new(data(partition=Record(1))), "not one of spec 4"),
        (2, ManifestContent.DATA, new(data(first_row_id=3)), "first row id"),
        (2, ManifestContent.DATA, added_entry(NewFile(data(), 4), SNAPSHOT + 1), "takes its snapshot"),
        (2, ManifestContent.DATA, ManifestEntry(ManifestEntryStatus.EXISTING, 1, None, None, data()), "inherited"),
        (2, ManifestContent.DATA, ManifestEntry(ManifestEntryStatus.DELETED, 1, 1, 1, data()), "names the snapshot"),
        (
            2,
            ManifestContent.DELETES,
            new(data(content=DataFileContent.POSITION_DELETES, file_format=FileFormat.PUFFIN)),
            "no deletion vectors",
        ),
        (3, ManifestContent.DELETES, new(data(content=DataFileContent.POSITION_DELETES)), "no new position delete"),
    ],
)
def test_what_breaks_the_spec_is_not_written(
    version: int,
    content: ManifestContent,
    entry: ManifestEntry,
    complaint: str,
    write: Callable[..., list[ManifestFile]],
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=complaint):
        write(table(version), [entry], content)
    assert not list(tmp_path.iterdir())


class TestManifestLists:
    """Manifest lists, and the row ids that they give out."""

    def list_of(
        self, io: PyArrowFileIO, path: str, metadata: TableMetadata, manifests: list[ManifestFile], rows: int | None
    ) -> tuple[int | None, list[ManifestFile]]:
        next_row = write_manifest_list(io, path, metadata, SNAPSHOT, None, SEQUENCE, manifests, rows)
        snapshot = Snapshot(snapshot_id=SNAPSHOT, manifest_list=path, sequence_number=SEQUENCE)
        return next_row, read_manifest_list(io, snapshot)

    def test_version_2(
        self, io: PyArrowFileIO, paths: Callable[[], str], write: Callable[..., list[ManifestFile]]
    ) -> None:
        metadata = table(2, LongType())
        manifests = write(metadata, [new(data(partition=Record(5)))])
        path = paths()
        next_row, [manifest] = self.list_of(io, path, metadata, manifests, None)
        assert next_row is None
        assert manifest == manifests[0]
        assert [manifest[n] for n in range(13)] == [manifests[0][n] for n in range(13)]
        assert manifest.partitions == manifests[0].partitions
        records, header = avro(path)
        assert "first_row_id" not in records[0]
        assert {name: header[name] for name in header if not name.startswith("avro")} == {
            "snapshot-id": "77",
            "parent-snapshot-id": "null",
            "sequence-number": "9",
            "format-version": "2",
        }

    def test_version_3_gives_row_ids_to_data_manifests_that_have_none(
        self, io: PyArrowFileIO, paths: Callable[[], str], write: Callable[..., list[ManifestFile]]
    ) -> None:
        metadata = table(3)
        [first] = write(metadata, [new(data("a")), new(data("b"))])
        equality = data("d", content=DataFileContent.EQUALITY_DELETES)
        [deletes] = write(metadata, [new(equality)], ManifestContent.DELETES)
        [second] = write(metadata, [new(data("c", record_count=7))])
        path = paths()
        next_row, manifests = self.list_of(io, path, metadata, [first, deletes, second], 100)
        assert next_row == 127
        assert [first_row_id(manifest) for manifest in manifests] == [100, None, 120]
        assert avro(path)[1]["first-row-id"] == "100"
        assert [file.first_row_id for file in read_manifests(io, manifests)] == [100, 110, None, 120]
        # What has them keeps them.
        next_row, again = self.list_of(io, paths(), metadata, manifests, 127)
        assert next_row == 127
        assert [first_row_id(manifest) for manifest in again] == [100, None, 120]

    def test_a_rewritten_manifest_keeps_the_row_ids_of_its_files(
        self, io: PyArrowFileIO, paths: Callable[[], str], write: Callable[..., list[ManifestFile]]
    ) -> None:
        metadata = table(3)
        manifests = write(metadata, [new(data("a")), new(data("b"))])
        _, manifests = self.list_of(io, paths(), metadata, manifests, 0)
        a, b = read_manifests(io, manifests)
        rewritten = write(metadata, [deleted_entry(a, SNAPSHOT), existing_entry(b)])
        next_row, rewritten = self.list_of(io, paths(), metadata, rewritten, 20)
        assert [file.first_row_id for file in read_manifests(io, rewritten)] == [10]
        # The list leaves room for all its live rows, as the spec asks.
        assert next_row == 30

    def test_rows_from_before_the_upgrade_get_ids_with_the_first_list_of_version_3(
        self, io: PyArrowFileIO, paths: Callable[[], str], write: Callable[..., list[ManifestFile]]
    ) -> None:
        old = write(table(2), [new(data("a")), new(data("b"))])
        _, old = self.list_of(io, paths(), table(2), old, None)
        a, b = read_manifests(io, old)
        assert (a.first_row_id, b.first_row_id) == (None, None)
        cache: ManifestCache = {}
        list(read_manifests(io, old, cache=cache))
        _, given = self.list_of(io, paths(), table(3), old, 5)
        assert [file.first_row_id for file in read_manifests(io, given, cache=cache)] == [5, 15], (
            "known without, till now"
        )
        rewritten = write(table(3), [deleted_entry(a, SNAPSHOT), existing_entry(b)])
        next_row, manifests = self.list_of(io, paths(), table(3), rewritten, 0)
        assert [file.first_row_id for file in read_manifests(io, manifests)] == [0]
        assert next_row == 10


class TestCorruptFiles:
    """No broken file reads as a shorter one."""

    @pytest.fixture
    def manifest(self, write: Callable[..., list[ManifestFile]]) -> ManifestFile:
        metadata = table(2, **{"write.manifest.compression-codec": "uncompressed"})
        [manifest] = write(metadata, (new(data(f"{n:04d}" + "x" * 300)) for n in range(1000)))
        return manifest

    def test_a_missing_manifest_is_named(self, io: PyArrowFileIO, manifest: ManifestFile) -> None:
        local(manifest.manifest_path).unlink()
        with pytest.raises(Corrupt, match=f"{manifest.manifest_path} is missing"):
            read_manifest(io, manifest)

    @pytest.mark.parametrize("kept", [0, 3, 100, 0.3, 0.5, 0.99])
    def test_a_cut_manifest_is_named(self, kept: float, io: PyArrowFileIO, manifest: ManifestFile) -> None:
        path = local(manifest.manifest_path)
        contents = path.read_bytes()
        path.write_bytes(contents[: int(kept if kept > 1 else kept * len(contents))])
        with pytest.raises(Corrupt, match=manifest.manifest_path):
            read_manifest(io, manifest)

    def test_a_manifest_cut_between_blocks_is_named(self, io: PyArrowFileIO, manifest: ManifestFile) -> None:
        path = local(manifest.manifest_path)
        contents = path.read_bytes()
        sync = contents[-16:]
        path.write_bytes(contents[: contents.rfind(sync, 0, -16) + 16])
        with pytest.raises(Corrupt, match="fewer files"):
            read_manifest(io, manifest)

    def test_wrong_bytes_in_a_block_boundary_are_named(self, io: PyArrowFileIO, manifest: ManifestFile) -> None:
        path = local(manifest.manifest_path)
        path.write_bytes(path.read_bytes()[:-1] + b"\x00")
        with pytest.raises(Corrupt, match="sync marker"):
            read_manifest(io, manifest)

    def test_a_manifest_list_that_is_none_is_named(self, io: PyArrowFileIO, tmp_path: Path) -> None:
        path = tmp_path / "snap.avro"
        path.write_text("nothing of the kind")
        snapshot = Snapshot(snapshot_id=1, manifest_list=f"file://{path}")
        with pytest.raises(Corrupt, match=r"manifest list .*snap.avro cannot be read: it is not an Avro file"):
            read_manifest_list(io, snapshot)


def test_named_types_that_are_referred_to_are_read(
    io: PyArrowFileIO, tmp_path: Path, write: Callable[..., list[ManifestFile]]
) -> None:
    """Avro files of other engines define a fixed type once and refer to it by its name."""
    values = (uuid.UUID(int=1), uuid.UUID(int=2))
    [manifest] = write(table(2, UUIDType(), UUIDType()), [new(data(partition=Record(*values)))])
    records, header = avro(manifest.manifest_path)
    schema = json.loads(header["avro.schema"])
    [file_type] = [field["type"] for field in schema["fields"] if field["name"] == "data_file"]
    [partition] = [field["type"] for field in file_type["fields"] if field["name"] == "partition"]
    partition["fields"][1]["type"][1] = partition["fields"][0]["type"][1]["name"]
    path = tmp_path / "foreign.avro"
    with path.open("wb") as stream:
        fastavro.writer(stream, schema, records)
    foreign = ManifestFile(f"file://{path}", *(manifest[n] for n in range(1, 16)))
    assert read_manifest(io, foreign)[0].partition == Record(*values)


def test_bucket_partitions_of_a_dropped_column(io: PyArrowFileIO, paths: Callable[[], str]) -> None:
    document = table(2, LongType(), StringType()).model_dump()
    document["schemas"].append(
        {**document["schemas"][0], "schema-id": 5, "fields": document["schemas"][0]["fields"][:1]}
    )
    document["current-schema-id"] = 5
    spec = PartitionSpec(
        PartitionField(2, 1000, BucketTransform(8), "b"), PartitionField(2, 1001, IdentityTransform(), "c2"), spec_id=6
    )
    document["partition-specs"].append(spec.model_dump())
    metadata = TableMetadataUtil.parse_obj(document)
    entry = added_entry(NewFile(data(partition=Record(3, "x")), 6), SNAPSHOT)
    [manifest] = write_manifests(io, paths, metadata, spec, ManifestContent.DATA, SNAPSHOT, SEQUENCE, [entry])
    assert read_manifest(io, manifest)[0].partition == Record(3, "x")
    # The schema beside the spec knows its source, so that readers can bind it.
    assert json.loads(avro(manifest.manifest_path)[1]["schema"])["schema-id"] == 3
    assert [s.upper_bound for s in manifest.partitions or []] == [to_bytes(IntegerType(), 3), b"x"]


def fixture_tables() -> list[str]:
    root = os.environ.get("ICEFLEET_FIXTURES")
    found = Path(root).glob("*/**/metadata") if root else []
    return sorted(str(folder.parent) for folder in found)


@pytest.mark.skipif(not os.environ.get("ICEFLEET_FIXTURES"), reason="ICEFLEET_FIXTURES is not set")
@pytest.mark.parametrize("source", fixture_tables(), ids=lambda source: Path(source).name)
def test_manifests_of_other_engines(source: str, tmp_path: Path) -> None:
    """Each file that PyIceberg finds is found, with the same numbers."""
    tool = Path(os.environ["ICEFLEET_FIXTURES"]).parent / "tools" / "relocate_table.py"
    copy = subprocess.run(
        [sys.executable, str(tool), source, str(tmp_path / "copy")], capture_output=True, text=True, check=True
    )
    static = StaticTable.from_metadata(copy.stdout.strip())
    for snapshot in static.metadata.snapshots:
        live = read_manifests(static.io, read_manifest_list(static.io, snapshot))
        theirs = [
            entry for manifest in snapshot.manifests(static.io) for entry in manifest.fetch_manifest_entry(static.io)
        ]
        assert sorted(map(known, live)) == sorted(
            (e.data_file.file_path, e.sequence_number, e.file_sequence_number, repr(e.data_file.partition))
            for e in theirs
        )


def known(file: LiveFile) -> tuple[str, int, int, str]:
    return file.path, file.sequence_number, file.file_sequence_number, repr(file.partition)


def test_garbage_collection_is_paused_also_when_nested() -> None:
    assert gc.isenabled()
    with pause_gc():
        assert not gc.isenabled()
        with pause_gc():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_garbage_collection_resumes_after_an_error() -> None:
    with pytest.raises(KeyError), pause_gc():
        raise KeyError
    assert gc.isenabled()


def test_garbage_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with pause_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
