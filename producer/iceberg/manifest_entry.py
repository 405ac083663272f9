"""Manifest entries: what a snapshot adds, keeps and removes, and how each is written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    ManifestEntry,
    ManifestEntryStatus,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from producer.iceberg.manifest_reader import LiveFile
from producer.iceberg.partitions import PartitionKey, decode_partition, partition_key, partition_type
from producer.model.plan import Scope

_EQUALITY_IDS = 135
_REFERENCED_DATA_FILE = 143


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file, delete file or deletion vector that a snapshot adds."""

    #: Record with the fields of format version 3, whatever the table's; its first row id is null.
    data_file: DataFile
    #: Spec it was written under; the partition tuple is one of that spec's.
    spec_id: int
    #: Data sequence number, for rewritten rows that are older than the snapshot; None is the snapshot's own.
    sequence_number: int | None = None

    @property
    def partition_key(self) -> PartitionKey:
        """Spec id and partition tuple, hashable."""
        return partition_key(self.spec_id, self.data_file.partition)


def new_data_file(**fields: Any) -> DataFile:
    """Record of a file with the fields of format version 3, by their names in the spec; those left out are null."""
    return DataFile.from_args(_table_format_version=3, **fields)


def partition_of(metadata: TableMetadata, scope: Scope) -> Record:
    """The partition tuple that a plan or a staged record speaks of."""
    return decode_partition(partition_type(metadata, metadata.specs()[scope.spec_id]), scope.values)


class PartitionTuples:
    """The partition tuples of one table's scopes, each worked out once: a commit asks for every file that it adds."""

    def __init__(self, metadata: TableMetadata) -> None:
        self._metadata = metadata
        self._known: dict[tuple[int, tuple[str | None, ...]], Record] = {}

    def of(self, scope: Scope) -> Record:
        """As :func:`partition_of`."""
        key = scope.spec_id, scope.values
        if key not in self._known:
            self._known[key] = partition_of(self._metadata, scope)
        return self._known[key]


def added(file: NewFile, snapshot_id: int) -> ManifestEntry:
    """Entry of a file that the snapshot adds; what is null in it is inherited (spec, Manifest Entry Fields)."""
    return ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, file.sequence_number, None, file.data_file)


def existing(file: LiveFile) -> ManifestEntry:
    """Entry of a file that stays, in a manifest written anew."""
    entry = file.entry
    return ManifestEntry(
        ManifestEntryStatus.EXISTING,
        entry.snapshot_id,
        entry.sequence_number,
        entry.file_sequence_number,
        entry.data_file,
    )


def deleted(file: LiveFile, snapshot_id: int) -> ManifestEntry:
    """Entry of a file that the snapshot removes."""
    entry = file.entry
    return ManifestEntry(
        ManifestEntryStatus.DELETED, snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file
    )


def entry_schema(version: TableVersion, partition: StructType) -> Schema:
    """Schema of the entries in a manifest of a format version, for partition tuples of a type."""
    fields = data_file_with_partition(partition, version).fields
    # Version 2 has this field too; PyIceberg's schema of it came before (spec, Data File Fields).
    if version == 2:
        fields = (*fields, next(field for field in DATA_FILE_TYPE[3].fields if field.field_id == _REFERENCED_DATA_FILE))
    # PyIceberg writes equality ids as long, which the reference implementation cannot read.
    ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    fields = tuple(
        NestedField(field.field_id, field.name, ids, required=False) if field.field_id == _EQUALITY_IDS else field
        for field in fields
    )
    return manifest_entry_schema_with_data_file(version, StructType(*fields))
