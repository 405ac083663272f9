"""Reading of manifest lists and manifests with all that format version 3 has, on files of any version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from producer.common.errors import Corrupt
from producer.iceberg.avro_reader import AvroReader
from producer.iceberg.column_bounds import TRUNCATED
from producer.iceberg.partitions import PartitionKey, partition_key

#: Column of position delete files that names the data file (spec, Reserved Field IDs).
FILE_PATH_ID = 2147483546

#: What names of data files end in; a bound that was cut seldom does.
_SUFFIXES = (".parquet", ".avro", ".orc")

_POSITIONS = {field.name: position for position, field in enumerate(DATA_FILE_TYPE[3].fields)}
_FIRST_ROW_ID = _POSITIONS["first_row_id"]
_REFERENCED_DATA_FILE = _POSITIONS["referenced_data_file"]
_CONTENT_OFFSET = _POSITIONS["content_offset"]
_CONTENT_SIZE = _POSITIONS["content_size_in_bytes"]
_LIST_FIRST_ROW_ID = len(MANIFEST_LIST_FILE_SCHEMAS[3].fields) - 1

_LISTS = AvroReader(
    MANIFEST_LIST_FILE_SCHEMAS[3],
    types={-1: ManifestFile, 508: PartitionFieldSummary},
    enums={517: ManifestContent},
)
_ENTRIES = AvroReader(
    MANIFEST_ENTRY_SCHEMAS[3],
    types={-1: ManifestEntry, 2: DataFile},
    enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)


@dataclass(frozen=True, slots=True, eq=False)
class LiveFile:
    """A data file, delete file or deletion vector that is part of a snapshot.

    What the entry left to be inherited from its manifest is filled in: snapshot id, both sequence numbers and,
    for data files of format version 3, the first row id (spec, Sequence Number Inheritance, Row Lineage). The file
    sequence number of an existing file is optional, and not inherited.
    """

    #: The entry as it stands in the manifest, a record of format version 3 whatever the manifest's version.
    entry: ManifestEntry
    #: The manifest that holds the entry.
    manifest: ManifestFile
    #: Spec id and partition tuple, hashable.
    partition_key: PartitionKey

    @property
    def data_file(self) -> DataFile:
        """Record of the file; its fields are those of format version 3."""
        return self.entry.data_file

    @property
    def path(self) -> str:
        """Full path, as the table spells it."""
        return self.entry.data_file.file_path

    @property
    def content(self) -> DataFileContent:
        """Data, position deletes (vectors too) or equality deletes."""
        # What version 1 leaves out, PyIceberg fills in as a plain number.
        return DataFileContent(self.entry.data_file.content)

    @property
    def format(self) -> FileFormat:
        """Format of the file."""
        return self.entry.data_file.file_format

    @property
    def spec_id(self) -> int:
        """Id of the spec the file was written under, which may be a historic one."""
        return self.manifest.partition_spec_id

    @property
    def partition(self) -> Record:
        """Partition tuple under that spec."""
        return self.entry.data_file.partition

    @property
    def sequence_number(self) -> int:
        """Data sequence number."""
        return self.entry.sequence_number or 0

    @property
    def file_sequence_number(self) -> int | None:
        """Sequence number of the snapshot that added the file; None where a rewritten manifest does not tell."""
        number: int | None = self.entry.file_sequence_number
        return number

    @property
    def snapshot_id(self) -> int | None:
        """Snapshot that added the file."""
        return self.entry.snapshot_id

    @property
    def record_count(self) -> int:
        """Rows; a vector's cardinality."""
        return self.entry.data_file.record_count

    @property
    def size(self) -> int:
        """Bytes of the whole file; of a vector, of the Puffin file that holds it."""
        return self.entry.data_file.file_size_in_bytes

    @property
    def equality_ids(self) -> tuple[int, ...]:
        """Field ids an equality delete compares; empty for other files."""
        return tuple(self.entry.data_file.equality_ids or ())

    @property
    def is_vector(self) -> bool:
        """Whether this is a deletion vector."""
        return self.format == FileFormat.PUFFIN

    @property
    def referenced_data_file(self) -> str | None:
        """The one data file that a delete is for, or None when it may name several.

        A position delete file also tells it by equal bounds of its ``file_path`` column, if they are a whole path: some
        writers cut bounds to so many characters, and paths of several files begin alike.
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
        """Where a vector's blob starts in its Puffin file."""
        offset: int | None = self.entry.data_file[_CONTENT_OFFSET]
        return offset

    @property
    def content_size(self) -> int | None:
        """Bytes of a vector's blob."""
        size: int | None = self.entry.data_file[_CONTENT_SIZE]
        return size

    @property
    def first_row_id(self) -> int | None:
        """Row id of a data file's first row; None for rows from before format version 3."""
        row_id: int | None = self.entry.data_file[_FIRST_ROW_ID]
        return row_id

    @property
    def lower_bounds(self) -> dict[int, bytes]:
        """Serialized lower bounds by field id, possibly truncated; empty where there are none."""
        return self.entry.data_file.lower_bounds or {}

    @property
    def upper_bounds(self) -> dict[int, bytes]:
        """Serialized upper bounds by field id, possibly truncated; empty where there are none."""
        return self.entry.data_file.upper_bounds or {}

    @property
    def value_counts(self) -> dict[int, int]:
        """Values by field id, nulls and NaN included; empty where not recorded."""
        return self.entry.data_file.value_counts or {}

    @property
    def null_value_counts(self) -> dict[int, int]:
        """Nulls by field id; empty where not recorded."""
        return self.entry.data_file.null_value_counts or {}

    @property
    def nan_value_counts(self) -> dict[int, int]:
        """NaN values by field id; empty where not recorded."""
        return self.entry.data_file.nan_value_counts or {}

    @property
    def identity(self) -> tuple[str, int | None]:
        """What tells this file from every other of a snapshot: vectors share a Puffin file."""
        return self.path, self.content_offset


def _whole_path(bound: bytes) -> str | None:
    """The path that a bound is, or None where it may be the beginning of several."""
    try:
        path = bound.decode("utf-8")
    except UnicodeDecodeError:  # cut within a character
        return None
    return path if len(path) > TRUNCATED and path.lower().endswith(_SUFFIXES) else None


#: What tells a manifest as one list gives it: a manifest never changes, but a list may give it row ids that an earlier
#: one did not. PyIceberg takes manifests of the same path for equal.
ManifestKey: TypeAlias = tuple[str, int | None]
#: Live files of manifests that were read.
KnownManifests: TypeAlias = dict[ManifestKey, list[LiveFile]]


def first_row_id(manifest: ManifestFile) -> int | None:
    """Row id from which a data manifest's files take theirs; None until a list of format version 3 assigned one."""
    row_id: int | None = manifest[_LIST_FIRST_ROW_ID]
    return row_id


def manifest_key(manifest: ManifestFile) -> ManifestKey:
    """What tells a manifest from others, and from itself before it was given row ids."""
    return manifest.manifest_path, first_row_id(manifest)


def read_manifest_list(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Manifests of a snapshot in the order of its list, as records of format version 3.

    Raises:
        Corrupt: names the list when it is missing or cannot be read.
    """
    return _read(io, _LISTS, snapshot.manifest_list, "manifest list")


def read_manifest(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
    """Live files of a manifest in its order; entries of removed files are left out.

    Raises:
        Corrupt: names the manifest when it is missing, cannot be read or holds fewer live files than its list says.
    """
    entries: list[ManifestEntry] = _read(io, _ENTRIES, manifest.manifest_path, "manifest")
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    if len(live) < (manifest.added_files_count or 0) + (manifest.existing_files_count or 0):
        raise Corrupt(f"The manifest {manifest.manifest_path} holds fewer files than its manifest list says.")
    if manifest.content == ManifestContent.DATA:
        _assign_row_ids(live, first_row_id(manifest))
    return [_inherit(entry, manifest) for entry in live]


def read_manifests(
    io: FileIO, manifests: Iterable[ManifestFile], *, known: KnownManifests | None = None, threads: int = 8
) -> Iterator[LiveFile]:
    """Live files of many manifests, in order; the manifests are fetched side by side.

    Args:
        known: What was read before, which is not read again; what is read now is added to it.

    Raises:
        Corrupt: as :func:`read_manifest`, for the first manifest in order that cannot be read.
    """
    kept = {} if known is None else known

    def read(manifest: ManifestFile) -> list[LiveFile]:
        key = manifest_key(manifest)
        return kept[key] if key in kept else read_manifest(io, manifest)

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="manifests") as pool:
        wanted = list(manifests)
        for manifest, files in zip(wanted, pool.map(read, wanted), strict=True):
            if known is not None:
                known[manifest_key(manifest)] = files
            yield from files


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> LiveFile:
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    # Version 1 stores no sequence numbers: all are 0, as is the manifest's.
    if entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
        if entry.file_sequence_number is None:
            entry.file_sequence_number = manifest.sequence_number
    if entry.sequence_number is None:
        raise Corrupt(f"The manifest {manifest.manifest_path} has an existing file without a sequence number.")
    entry.data_file.spec_id = manifest.partition_spec_id
    return LiveFile(entry, manifest, partition_key(manifest.partition_spec_id, entry.data_file.partition))


def _assign_row_ids(live: list[ManifestEntry], next_row_id: int | None) -> None:
    for entry in live:
        if next_row_id is not None and entry.data_file[_FIRST_ROW_ID] is None:
            entry.data_file[_FIRST_ROW_ID] = next_row_id
            next_row_id += entry.data_file.record_count


def _read(io: FileIO, reader: AvroReader, path: str, kind: str) -> list[Any]:
    try:
        with io.new_input(path).open() as stream:
            contents = stream.read()
    except FileNotFoundError as error:
        raise Corrupt(f"The {kind} {path} is missing.") from error
    try:
        return list(reader.read(contents))
    except Exception as error:
        # Nothing is fetched here any more, so whatever goes wrong is wrong with the bytes.
        raise Corrupt(f"The {kind} {path} cannot be read: {error}") from error
