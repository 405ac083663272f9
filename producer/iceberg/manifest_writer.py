"""Writing of manifests, for format versions 1 to 3."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType, StructType, UUIDType

from producer.iceberg.avro_writer import AvroWriter, put
from producer.iceberg.manifest_entry import entry_schema
from producer.iceberg.partitions import PartitionKey, partition_key, partition_type, source_schema
from producer.iceberg.table_properties import manifest_codec, manifest_size

_FIRST_ROW_ID = next(index for index, part in enumerate(DATA_FILE_TYPE[3].fields) if part.name == "first_row_id")


def write_manifests(
    io: FileIO,
    new_path: Callable[[], str],
    metadata: TableMetadata,
    spec: PartitionSpec,
    content: ManifestContent,
    snapshot_id: int,
    sequence_number: int,
    entries: Iterable[ManifestEntry],
) -> Iterator[ManifestFile]:
    """Write entries into as many manifests as ``commit.manifest.target-size-bytes`` makes of them.

    All entries are of one spec, and all are of data or all of deletes. The format version is the table's.

    Args:
        new_path: gives the full path of the next manifest.
        snapshot_id: the snapshot that the manifests are written for.
        sequence_number: that snapshot's, which entries without one inherit; 0 in version 1, which has none.

    Yields:
        What the manifest list says of each manifest, once it is on storage.

    Raises:
        ValueError: when an entry breaks a rule of the spec; nothing of that manifest was written.
    """
    target_size = manifest_size(metadata.properties)
    shape = _Shape(metadata, spec, content, snapshot_id, sequence_number)
    manifest: _Manifest | None = None
    for entry in entries:
        if manifest is not None and manifest.writer.size >= target_size:
            yield manifest.write(io, new_path())
            manifest = None
        if manifest is None:
            manifest = _Manifest(shape)
        manifest.add(entry)
    if manifest is not None:
        yield manifest.write(io, new_path())


@dataclass(frozen=True)
class _Shape:
    """What the manifests of one spec and content, written for one snapshot, have in common."""

    metadata: TableMetadata
    spec: PartitionSpec
    content: ManifestContent
    snapshot_id: int
    sequence_number: int
    partition_type: StructType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_type", partition_type(self.metadata, self.spec))

    def new_writer(self) -> AvroWriter:
        version = self.metadata.format_version
        schema = source_schema(self.metadata, self.spec)
        fields = ",".join(field.model_dump_json() for field in self.spec.fields)
        header = {
            "schema": schema.model_dump_json(),
            "schema-id": str(schema.schema_id),
            "partition-spec": f"[{fields}]",
            "partition-spec-id": str(self.spec.spec_id),
            "format-version": str(version),
        }
        if version >= 2:
            header["content"] = "data" if self.content == ManifestContent.DATA else "deletes"
        return AvroWriter(
            "manifest_entry",
            entry_schema(version, self.partition_type),
            entry_schema(3, self.partition_type),
            header,
            manifest_codec(self.metadata.properties),
        )

    def check(self, entry: ManifestEntry) -> None:
        data_file = entry.data_file
        version = self.metadata.format_version
        if (data_file.content == DataFileContent.DATA) != (self.content == ManifestContent.DATA):
            raise ValueError(f"Data and deletes never share a manifest: {data_file.file_path}")
        if version < 2 and self.content != ManifestContent.DATA:
            raise ValueError(f"Format version 1 has no deletes: {data_file.file_path}")
        if len(data_file.partition) != len(self.spec.fields):
            raise ValueError(f"The partition is not one of spec {self.spec.spec_id}: {data_file.file_path}")
        if data_file.file_format == FileFormat.PUFFIN and version < 3:
            raise ValueError(f"Format version {version} has no deletion vectors: {data_file.file_path}")
        if entry.status == ManifestEntryStatus.ADDED:
            if entry.snapshot_id != self.snapshot_id or entry.file_sequence_number is not None:
                raise ValueError(f"An added file takes its snapshot and file sequence number: {data_file.file_path}")
            if data_file[_FIRST_ROW_ID] is not None:
                raise ValueError(f"An added file has no first row id yet: {data_file.file_path}")
            is_position_delete = data_file.content == DataFileContent.POSITION_DELETES
            if version >= 3 and is_position_delete and data_file.file_format != FileFormat.PUFFIN:
                raise ValueError(f"Format version 3 takes no new position delete files: {data_file.file_path}")
        elif entry.snapshot_id is None or entry.sequence_number is None:
            raise ValueError(f"Only an added file may leave numbers to be inherited: {data_file.file_path}")
        elif entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id != self.snapshot_id:
            raise ValueError(f"A deleted entry names the snapshot that deletes it: {data_file.file_path}")


class _Manifest:
    """One manifest in the making."""

    def __init__(self, shape: _Shape) -> None:
        self._shape = shape
        self.writer = shape.new_writer()
        self._files = dict.fromkeys(ManifestEntryStatus, 0)
        self._rows = dict.fromkeys(ManifestEntryStatus, 0)
        self._lowest: int | None = None
        self._partitions: dict[PartitionKey, tuple[Any, ...]] = {}

    def add(self, entry: ManifestEntry) -> None:
        self._shape.check(entry)
        self.writer.add(entry)
        self._files[entry.status] += 1
        self._rows[entry.status] += entry.data_file.record_count
        if entry.status != ManifestEntryStatus.DELETED:
            number = self._shape.sequence_number if entry.sequence_number is None else entry.sequence_number
            self._lowest = number if self._lowest is None else min(self._lowest, number)
        partition = entry.data_file.partition
        self._partitions.setdefault(
            partition_key(self._shape.spec.spec_id, partition), tuple(partition[i] for i in range(len(partition)))
        )

    def write(self, io: FileIO, path: str) -> ManifestFile:
        contents = self.writer.finish()
        put(io, path, contents)
        added, existing, deleted = (
            ManifestEntryStatus.ADDED,
            ManifestEntryStatus.EXISTING,
            ManifestEntryStatus.DELETED,
        )
        return ManifestFile(
            path,
            len(contents),
            self._shape.spec.spec_id,
            self._shape.content,
            self._shape.sequence_number,
            self._shape.sequence_number if self._lowest is None else self._lowest,
            self._shape.snapshot_id,
            self._files[added],
            self._files[existing],
            self._files[deleted],
            self._rows[added],
            self._rows[existing],
            self._rows[deleted],
            self._summaries(),
            None,
            None,
        )

    def _summaries(self) -> list[PartitionFieldSummary] | None:
        """Summaries of the partition fields; None where readers order the values of one in different ways.

        All or none: readers take a summary without bounds for one of nulls alone, and would skip the manifest.
        """
        partitions = list(self._partitions.values())
        columns = [
            (cast(PrimitiveType, part.field_type), [partition[position] for partition in partitions])
            for position, part in enumerate(self._shape.partition_type.fields)
        ]
        if any(isinstance(field_type, UUIDType) and _orders_differ(values) for field_type, values in columns):
            return None
        return [_summary(field_type, values) for field_type, values in columns]


def _orders_differ(uuids: list[uuid.UUID | None]) -> bool:
    """Whether UUIDs have different bounds for different readers.

    By the spec they are ordered as bytes; Iceberg's Java implementation orders them as pairs of signed numbers. The
    orders agree as long as the first halves have one sign and the second halves have one.
    """
    return len({(value.int >> 127, value.int >> 63 & 1) for value in uuids if value is not None}) > 1


def _summary(field_type: PrimitiveType, values: list[Any]) -> PartitionFieldSummary:
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    lower, upper = (min(numbers), max(numbers)) if numbers else (None, None)
    if isinstance(lower, float) and isinstance(upper, float):
        # Python takes the zeros for equal, readers order -0.0 before 0.0.
        lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)
    return PartitionFieldSummary(
        len(present) < len(values),
        len(numbers) < len(present),
        None if lower is None else to_bytes(field_type, lower),
        None if upper is None else to_bytes(field_type, upper),
    )
