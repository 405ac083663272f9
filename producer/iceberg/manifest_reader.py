"""Read manifest lists and manifests of all format versions, with all that format version 3 has."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, cast

from pyiceberg.io import FileIO
from pyiceberg.manifest import (
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

from producer.common.errors import Corrupt
from producer.iceberg.avro import AvroReader
from producer.iceberg.manifest_entry import DATA_FILE_POSITIONS, LiveFile
from producer.iceberg.partitions import partition_key
from producer.storage.concurrency import request_limit

_FIRST_ROW_ID: Final = DATA_FILE_POSITIONS["first_row_id"]
_MANIFEST_FIRST_ROW_ID: Final = len(MANIFEST_LIST_FILE_SCHEMAS[3].fields) - 1

_LIST_READER: Final = AvroReader(
    MANIFEST_LIST_FILE_SCHEMAS[3], types={-1: ManifestFile, 508: PartitionFieldSummary}, enums={517: ManifestContent}
)
_ENTRY_READER: Final = AvroReader(
    MANIFEST_ENTRY_SCHEMAS[3],
    types={-1: ManifestEntry, 2: DataFile},
    enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)

#: Path and first row id of a manifest. A manifest never changes, but a manifest list may assign it row ids that an
#: earlier list did not. PyIceberg's manifests are equal if their paths are.
ManifestKey: TypeAlias = tuple[str, int | None]
#: Live files of the manifests that were read.
ManifestCache: TypeAlias = dict[ManifestKey, list[LiveFile]]


def first_row_id(manifest: ManifestFile) -> int | None:
    """Return the first row id of a data manifest's files; None until a list of format version 3 assigns one."""
    return cast("int | None", manifest[_MANIFEST_FIRST_ROW_ID])


def manifest_key(manifest: ManifestFile) -> ManifestKey:
    """Return the key that distinguishes a manifest from others, and from itself before it had row ids."""
    return manifest.manifest_path, first_row_id(manifest)


def read_manifest_list(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot in the order of its list, as records of format version 3.

    Raises:
        Corrupt: The list is missing or cannot be read; the message names it.
    """
    return _read(io, _LIST_READER, snapshot.manifest_list, "manifest list")


def read_manifest(io: FileIO, manifest: ManifestFile) -> list[LiveFile]:
    """Return the live files of a manifest in order, without entries of removed files.

    Raises:
        Corrupt: The manifest is missing, cannot be read or has fewer live files than its list says; the message names
            it.
    """
    entries: list[ManifestEntry] = _read(io, _ENTRY_READER, manifest.manifest_path, "manifest")
    live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    if len(live) < (manifest.added_files_count or 0) + (manifest.existing_files_count or 0):
        raise Corrupt(f"The manifest {manifest.manifest_path} holds fewer files than its manifest list says.")
    if manifest.content == ManifestContent.DATA:
        _assign_row_ids(live, first_row_id(manifest))
    return [_inherit(entry, manifest) for entry in live]


def read_manifests(
    io: FileIO, manifests: Iterable[ManifestFile], *, cache: ManifestCache | None = None
) -> Iterator[LiveFile]:
    """Yield the live files of many manifests, in order; the manifests are fetched in parallel.

    Manifests of the cache are not read again; those that are read now are added.

    Raises:
        Corrupt: A manifest cannot be read, as :func:`read_manifest` says; the first one in order is named.
    """
    cached = {} if cache is None else cache

    def read(manifest: ManifestFile) -> list[LiveFile]:
        key = manifest_key(manifest)
        return cached[key] if key in cached else read_manifest(io, manifest)

    with ThreadPoolExecutor(request_limit().requests, thread_name_prefix="manifests") as pool:
        wanted = list(manifests)
        for manifest, files in zip(wanted, pool.map(read, wanted), strict=True):
            if cache is not None:
                cache[manifest_key(manifest)] = files
            yield from files


@contextmanager
def pause_gc() -> Iterator[None]:
    """Pause Python's cyclic garbage collection in this process; a context manager and a decorator.

    For code that reads whole snapshots: their entries are millions of objects that stay, and each collection traverses
    all of them again (2.8 of the 4.4 s that reading 110,000 entries took). They are in no cycles, so they are
    freed as usual.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:  # of several threads here, the first that found it enabled enables it again
            gc.enable()


def _inherit(entry: ManifestEntry, manifest: ManifestFile) -> LiveFile:
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    # Version 1 has no sequence numbers: all are 0, as is the manifest's.
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
        # The bytes are in memory, so every error is an error in them.
        raise Corrupt(f"The {kind} {path} cannot be read: {error}") from error
