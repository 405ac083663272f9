"""Write manifests and manifest lists, in format versions 1 to 3."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
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
from pyiceberg.types import PrimitiveType, UUIDType

from producer.iceberg.avro import AvroWriter
from producer.iceberg.manifest_entry import DATA_FILE_POSITIONS, manifest_entry_schema
from producer.iceberg.manifest_reader import first_row_id
from producer.iceberg.partitions import PartitionKey, partition_key, partition_type, source_schema
from producer.iceberg.table_properties import manifest_codec, manifest_size
from producer.storage.files import write_file

_FIRST_ROW_ID: Final = DATA_FILE_POSITIONS["first_row_id"]


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
    """Write entries into manifests of ``commit.manifest.target-size-bytes``, in the table's format version.

    All entries are of the given spec and content. Those without a sequence number inherit the snapshot's; version 1
    has none, and 0 is given. ``new_path`` returns the full path of the next manifest.

    Yields:
        The manifest list's record of each manifest, after the manifest is on storage.

    Raises:
        ValueError: An entry breaks a rule of the spec; nothing of that manifest was written.
    """
    target_size = manifest_size(metadata.properties)
    manifest: _ManifestWriter | None = None
    for entry in entries:
        if manifest is not None and manifest.writer.size >= target_size:
            yield manifest.write(io, new_path())
            manifest = None
        if manifest is None:
            manifest = _ManifestWriter(metadata, spec, content, snapshot_id, sequence_number)
        manifest.add(entry)
    if manifest is not None:
        yield manifest.write(io, new_path())


def write_manifest_list(
    io: FileIO,
    path: str,
    metadata: TableMetadata,
    snapshot_id: int,
    parent_id: int | None,
    sequence_number: int,
    manifests: Sequence[ManifestFile],
    next_row_id: int | None = None,
) -> int | None:
    """Write a snapshot's manifest list in the table's format version.

    In version 3 each data manifest without a first row id gets one, and as many ids as it has added and existing rows
    (spec, First Row ID Assignment); ``next_row_id`` is then the table's.

    Returns:
        The row id after the last one assigned; None before version 3.
    """
    version = metadata.format_version
    schema = MANIFEST_LIST_FILE_SCHEMAS[version]
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "format-version": str(version),
    }
    if version >= 2:
        header["sequence-number"] = str(sequence_number)
    if version >= 3:
        if next_row_id is None:
            raise ValueError("A manifest list of format version 3 needs the table's next row id")
        header["first-row-id"] = str(next_row_id)
    codec = manifest_codec(metadata.properties)
    writer = AvroWriter("manifest_file", schema, MANIFEST_LIST_FILE_SCHEMAS[3], header, codec)
    for manifest in manifests:
        row_id = first_row_id(manifest)
        if next_row_id is not None and row_id is None and manifest.content == ManifestContent.DATA:
            row_id = next_row_id
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        writer.add(ManifestFile(*(manifest[position] for position in range(len(manifest) - 1)), row_id))
    write_file(io, path, writer.finish())
    return next_row_id


@dataclass
class _ManifestWriter:
    """Writes one manifest."""

    metadata: TableMetadata
    spec: PartitionSpec
    content: ManifestContent
    snapshot_id: int
    sequence_number: int

    def __post_init__(self) -> None:
        self._partition_type = partition_type(self.metadata, self.spec)
        self.writer = self._new_writer()
        self._files = dict.fromkeys(ManifestEntryStatus, 0)
        self._rows = dict.fromkeys(ManifestEntryStatus, 0)
        self._min_sequence_number: int | None = None
        self._partitions: dict[PartitionKey, tuple[Any, ...]] = {}

    def add(self, entry: ManifestEntry) -> None:
        self._check(entry)
        self.writer.add(entry)
        self._files[entry.status] += 1
        self._rows[entry.status] += entry.data_file.record_count
        if entry.status != ManifestEntryStatus.DELETED:
            number = self.sequence_number if entry.sequence_number is None else entry.sequence_number
            lowest = self._min_sequence_number
            self._min_sequence_number = number if lowest is None else min(lowest, number)
        partition = entry.data_file.partition
        key = partition_key(self.spec.spec_id, partition)
        self._partitions.setdefault(key, tuple(partition[i] for i in range(len(partition))))

    def write(self, io: FileIO, path: str) -> ManifestFile:
        contents = self.writer.finish()
        write_file(io, path, contents)
        statuses = (ManifestEntryStatus.ADDED, ManifestEntryStatus.EXISTING, ManifestEntryStatus.DELETED)
        return ManifestFile(
            path,
            len(contents),
            self.spec.spec_id,
            self.content,
            self.sequence_number,
            self.sequence_number if self._min_sequence_number is None else self._min_sequence_number,
            self.snapshot_id,
            *(self._files[status] for status in statuses),
            *(self._rows[status] for status in statuses),
            self._summaries(),
            None,
            None,
        )

    def _new_writer(self) -> AvroWriter:
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
            manifest_entry_schema(version, self._partition_type),
            manifest_entry_schema(3, self._partition_type),
            header,
            manifest_codec(self.metadata.properties),
        )

    def _check(self, entry: ManifestEntry) -> None:
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

    def _summaries(self) -> list[PartitionFieldSummary] | None:
        """Return the summaries of the partition fields, or None if readers disagree on the order of a field's values.

        All or none: to readers a summary without bounds means that all values are null, and they skip the manifest.
        """
        partitions = list(self._partitions.values())
        types = [cast(PrimitiveType, part.field_type) for part in self._partition_type.fields]
        columns = [(type_, [partition[i] for partition in partitions]) for i, type_ in enumerate(types)]
        if any(isinstance(field_type, UUIDType) and _orders_differ(values) for field_type, values in columns):
            return None
        return [_summary(field_type, values) for field_type, values in columns]


def _orders_differ(uuids: list[uuid.UUID | None]) -> bool:
    """Whether readers disagree on the bounds of UUIDs.

    The spec orders them as bytes; Iceberg's Java implementation orders them as pairs of signed numbers. The orders
    agree if all first halves have the same sign and so do all second halves.
    """
    return len({(value.int >> 127, value.int >> 63 & 1) for value in uuids if value is not None}) > 1


def _summary(field_type: PrimitiveType, values: list[Any]) -> PartitionFieldSummary:
    present = [value for value in values if value is not None]
    numbers = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
    lower, upper = (min(numbers), max(numbers)) if numbers else (None, None)
    if isinstance(lower, float) and isinstance(upper, float):
        # The zeros are equal in Python, but readers order -0.0 before 0.0.
        lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)
    return PartitionFieldSummary(
        len(present) < len(values),
        len(numbers) < len(present),
        None if lower is None else to_bytes(field_type, lower),
        None if upper is None else to_bytes(field_type, upper),
    )
