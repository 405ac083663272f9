"""Live files and table metadata made up for tests that need no storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.manifest import ManifestEntryStatus as Entry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import LiveFile, new_data_file
from producer.iceberg.partitions import partition_key


def metadata(
    *schemas: Schema, specs: Sequence[PartitionSpec] = (), version: int = 2, default_spec: int | None = None
) -> TableMetadata:
    """A table's metadata; the last schema and the last spec are the current ones unless told otherwise."""
    specs = list(specs) or [PartitionSpec(spec_id=0)]
    return TableMetadataUtil.parse_obj(
        {
            "format-version": version,
            "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
            "location": "file:///t",
            "last-updated-ms": 1,
            "last-column-id": max(schema.highest_field_id for schema in schemas),
            "schemas": [schema.model_dump() for schema in schemas],
            "current-schema-id": schemas[-1].schema_id,
            "partition-specs": [spec.model_dump() for spec in specs],
            "default-spec-id": specs[-1].spec_id if default_spec is None else default_spec,
            "last-partition-id": 1100,
            "last-sequence-number": 9,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            **({"next-row-id": 0} if version >= 3 else {}),
        }
    )


def spec(spec_id: int, *fields: tuple[int, Any, str]) -> PartitionSpec:
    """A partition spec out of (source id, transform, name)."""
    return PartitionSpec(
        *(PartitionField(source, 1000 + 10 * spec_id + n, how, name) for n, (source, how, name) in enumerate(fields)),
        spec_id=spec_id,
    )


def live(
    path: str,
    sequence_number: int,
    *partition: Any,
    content: DataFileContent = DataFileContent.DATA,
    spec_id: int = 0,
    **fields: Any,
) -> LiveFile:
    """A live file of one row; further fields of its record by their names in the spec."""
    given: dict[str, Any] = {
        "file_format": FileFormat.PARQUET,
        "record_count": 1,
        "file_size_in_bytes": 100,
        **fields,
    }
    record = new_data_file(content=content, file_path=path, partition=Record(*partition), **given)
    kind = ManifestContent.DATA if content == DataFileContent.DATA else ManifestContent.DELETES
    manifest = ManifestFile.from_args(
        manifest_path=f"m-{path}", manifest_length=1, partition_spec_id=spec_id, content=kind
    )
    entry = ManifestEntry(Entry.EXISTING, 1, sequence_number, sequence_number, record)
    return LiveFile(entry, manifest, partition_key(spec_id, record.partition))


def equality(path: str, sequence_number: int, *partition: Any, ids: Sequence[int] = (1,), **fields: Any) -> LiveFile:
    """An equality delete file."""
    return live(
        path,
        sequence_number,
        *partition,
        content=DataFileContent.EQUALITY_DELETES,
        equality_ids=list(ids),
        **fields,
    )


def positions(path: str, sequence_number: int, *partition: Any, **fields: Any) -> LiveFile:
    """A position delete file."""
    return live(path, sequence_number, *partition, content=DataFileContent.POSITION_DELETES, **fields)


def vector(path: str, sequence_number: int, target: str | None, *partition: Any, **fields: Any) -> LiveFile:
    """A deletion vector."""
    return positions(
        path,
        sequence_number,
        *partition,
        file_format=FileFormat.PUFFIN,
        referenced_data_file=target,
        content_offset=4,
        content_size_in_bytes=40,
        **fields,
    )
