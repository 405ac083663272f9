"""Entries of manifests: the files that a snapshot has, adds and removes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType

from producer.iceberg.partitions import PartitionKey, partition_key

#: Field id of the column of position delete files that names the data file (spec, Reserved Field IDs).
FILE_PATH_ID: Final = 2147483546
_EQUALITY_IDS_ID: Final = 135
#: Positions of the fields of a data file's record, by name.
DATA_FILE_POSITIONS: Final = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[3].fields)}
_FIRST_ROW_ID: Final = DATA_FILE_POSITIONS["first_row_id"]
_REFERENCED_DATA_FILE: Final = DATA_FILE_POSITIONS["referenced_data_file"]
_CONTENT_OFFSET: Final = DATA_FILE_POSITIONS["content_offset"]
_CONTENT_SIZE: Final = DATA_FILE_POSITIONS["content_size_in_bytes"]

#: Some writers truncate bounds to this length without raising the upper one: values may lie above it.
TRUNCATED_LENGTH: Final = 16
#: How the names of data files end; a truncated bound seldom ends so.
_FILE_EXTENSIONS: Final = (".parquet", ".avro", ".orc")


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file, delete file or deletion vector that is part of a snapshot.

    The fields that an entry inherits from its manifest are filled in: snapshot id, both sequence numbers and, for data
    files of format version 3, the first row id (spec, Sequence Number Inheritance, Row Lineage). The file sequence
    number of an existing file is optional and not inherited.
    """

    #: The manifest entry, as a record of format version 3 whatever the manifest's version.
    entry: ManifestEntry
    #: The manifest that holds the entry.
    manifest: ManifestFile
    #: Spec id and partition tuple, hashable.
    partition_key: PartitionKey

    @property
    def data_file(self) -> DataFile:
        """The record of the file, with the fields of format version 3."""
        return self.entry.data_file

    @property
    def path(self) -> str:
        """Full path, as the manifest spells it."""
        return self.entry.data_file.file_path

    @property
    def content(self) -> DataFileContent:
        """Data, position deletes (vectors too) or equality deletes."""
        # Version 1 has no content; PyIceberg fills it in as a plain number.
        return DataFileContent(self.entry.data_file.content)

    @property
    def format(self) -> FileFormat:
        """The file format."""
        return self.entry.data_file.file_format

    @property
    def spec_id(self) -> int:
        """Id of the partition spec of the file, which may be a historic one."""
        return self.manifest.partition_spec_id

    @property
    def partition(self) -> Record:
        """Partition tuple of that spec."""
        return self.entry.data_file.partition

    @property
    def sequence_number(self) -> int:
        """Data sequence number."""
        return self.entry.sequence_number or 0

    @property
    def file_sequence_number(self) -> int | None:
        """Sequence number of the snapshot that added the file; None if a rewritten manifest lacks it."""
        return self.entry.file_sequence_number

    @property
    def snapshot_id(self) -> int | None:
        """Id of the snapshot that added the file."""
        return self.entry.snapshot_id

    @property
    def record_count(self) -> int:
        """Number of rows; for a vector, its cardinality."""
        return self.entry.data_file.record_count

    @property
    def size(self) -> int:
        """Bytes of the whole file; for a vector, of the Puffin file that holds it."""
        return self.entry.data_file.file_size_in_bytes

    @property
    def equality_ids(self) -> tuple[int, ...]:
        """Field ids that an equality delete compares; empty for other files."""
        return tuple(self.entry.data_file.equality_ids or ())

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector."""
        return self.format == FileFormat.PUFFIN

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that a delete applies to, or None if it may name several.

        A position delete file without the field has it as equal bounds of its ``file_path`` column, if they are a whole
        path: some writers truncate bounds, and paths of several files begin alike.
        """
        data_file = self.entry.data_file
        explicit: str | None = data_file[_REFERENCED_DATA_FILE]
        if explicit is not None or data_file.content != DataFileContent.POSITION_DELETES:
            return explicit
        lower = (data_file.lower_bounds or {}).get(FILE_PATH_ID)
        upper = (data_file.upper_bounds or {}).get(FILE_PATH_ID)
        return _whole_path(lower) if lower is not None and lower == upper else None

    @property
    def content_offset(self) -> int | None:
        """Offset of a vector's blob in its Puffin file."""
        return cast("int | None", self.entry.data_file[_CONTENT_OFFSET])

    @property
    def content_size(self) -> int | None:
        """Bytes of a vector's blob."""
        return cast("int | None", self.entry.data_file[_CONTENT_SIZE])

    @property
    def first_row_id(self) -> int | None:
        """Row id of a data file's first row; None for rows that are older than format version 3."""
        return cast("int | None", self.entry.data_file[_FIRST_ROW_ID])

    @property
    def lower_bounds(self) -> dict[int, bytes]:
        """Serialized lower bounds by field id, possibly truncated; empty if not recorded."""
        return self.entry.data_file.lower_bounds or {}

    @property
    def upper_bounds(self) -> dict[int, bytes]:
        """Serialized upper bounds by field id, possibly truncated; empty if not recorded."""
        return self.entry.data_file.upper_bounds or {}

    @property
    def null_value_counts(self) -> dict[int, int]:
        """Number of nulls by field id; empty if not recorded."""
        return self.entry.data_file.null_value_counts or {}

    @property
    def identity(self) -> tuple[str, int | None]:
        """A unique key within a snapshot: vectors may share a Puffin file."""
        return self.path, self.content_offset


def _whole_path(bound: bytes) -> str | None:
    """Return the path in a bound, or None if the bound may be truncated."""
    try:
        path = bound.decode("utf-8")
    except UnicodeDecodeError:  # truncated within a character
        return None
    return path if len(path) > TRUNCATED_LENGTH and path.lower().endswith(_FILE_EXTENSIONS) else None


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file, delete file or deletion vector that a snapshot adds."""

    #: A record of format version 3, whatever the table's version; its first row id is null.
    data_file: DataFile
    #: The partition spec of the file; the partition tuple is one of that spec.
    spec_id: int
    #: Data sequence number, for rewritten rows that are older than the snapshot; None inherits the snapshot's.
    sequence_number: int | None = None

    @property
    def partition_key(self) -> PartitionKey:
        """Spec id and partition tuple, hashable."""
        return partition_key(self.spec_id, self.data_file.partition)


def new_data_file(**fields: Any) -> DataFile:
    """Return the record of a file, with the fields of format version 3 by their names in the spec; others are null."""
    return DataFile(*(fields.get(field.name, field.initial_default) for field in DATA_FILE_TYPE[3].fields))


def added_entry(file: NewFile, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a file that the snapshot adds; null fields are inherited (spec, Manifest Entry Fields)."""
    return ManifestEntry(ManifestEntryStatus.ADDED, snapshot_id, file.sequence_number, None, file.data_file)


def existing_entry(file: LiveFile) -> ManifestEntry:
    """Return the entry of a file that stays, for a rewritten manifest."""
    return _copy_entry(file.entry, ManifestEntryStatus.EXISTING, file.entry.snapshot_id)


def deleted_entry(file: LiveFile, snapshot_id: int) -> ManifestEntry:
    """Return the entry of a file that the snapshot removes."""
    return _copy_entry(file.entry, ManifestEntryStatus.DELETED, snapshot_id)


def _copy_entry(entry: ManifestEntry, status: ManifestEntryStatus, snapshot_id: int | None) -> ManifestEntry:
    return ManifestEntry(status, snapshot_id, entry.sequence_number, entry.file_sequence_number, entry.data_file)


def manifest_entry_schema(version: TableVersion, partition: StructType) -> Schema:
    """Return the schema of the entries in a manifest of a format version, with partition tuples of a type."""
    fields = data_file_with_partition(partition, version).fields
    # Version 2 has this field too, but PyIceberg's schema of it is older (spec, Data File Fields).
    if version == 2:
        fields = (*fields, DATA_FILE_TYPE[3].fields[_REFERENCED_DATA_FILE])
    # PyIceberg writes equality ids as long, which the reference implementation cannot read.
    ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
    fields = tuple(
        NestedField(field.field_id, field.name, ids, required=False) if field.field_id == _EQUALITY_IDS_ID else field
        for field in fields
    )
    return manifest_entry_schema_with_data_file(version, StructType(*fields))
