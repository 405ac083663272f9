"""Building of one snapshot on top of a branch's head."""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from producer.common.errors import Conflict, Reason, Refused
from producer.iceberg.manifest_entry import NewFile, added, deleted, existing
from producer.iceberg.manifest_list_writer import write_manifest_list
from producer.iceberg.manifest_reader import KnownManifests, LiveFile, read_manifest_list, read_manifests
from producer.iceberg.manifest_writer import write_manifests
from producer.iceberg.metadata_v3 import next_row_id
from producer.iceberg.pending_snapshot import PreparedSnapshot, delete_in_order
from producer.iceberg.snapshot_summary import summarize

#: Where the record of a manifest has its counts of files and rows, which are optional in version 1.
_COUNTS: Final = tuple(
    position
    for position, field in enumerate(MANIFEST_LIST_FILE_SCHEMAS[3].fields)
    if field.name.endswith(("_files_count", "_rows_count"))
)
#: Content and spec id of the manifests, and the entries that go there.
_Batch: TypeAlias = tuple[tuple[ManifestContent, int], list[ManifestEntry]]


class SnapshotUpdate:
    """Collects what a snapshot adds and removes.

    Built on the branch's head as the given table shows it: load the table right before, and again for each attempt.

    Args:
        table: freshly loaded.
        branch: the one ref that the snapshot moves.
        operation: what kind of change it is.
        properties: further entries of the snapshot's summary.
        create_branch: make the branch, at the head of main, where there is none.
        snapshot_id: of the snapshot to be; a new one by default.
        name: what the names of all its metadata files carry; a new one by default.
        known: manifests that were read already.

    Raises:
        Refused: the branch is missing or is a tag, or the format version is not 1, 2 or 3.
    """

    def __init__(
        self,
        table: Table,
        branch: str = MAIN_BRANCH,
        *,
        operation: Operation,
        properties: Mapping[str, str] | None = None,
        create_branch: bool = False,
        snapshot_id: int | None = None,
        name: str | None = None,
        known: KnownManifests | None = None,
    ) -> None:
        metadata = table.metadata
        if metadata.format_version not in (1, 2, 3):
            raise Refused(
                Reason.FORMAT_VERSION,
                f"Snapshots are written in format versions 1 to 3; the table is of version {metadata.format_version}.",
            )
        ref = metadata.refs.get(branch)
        if ref is None and branch != MAIN_BRANCH and not create_branch:
            raise Refused(Reason.UNKNOWN_BRANCH, f"The table has no branch {branch!r}.")
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise Refused(Reason.UNKNOWN_BRANCH, f"{branch!r} is a tag, not a branch.")
        self._table = table
        self._branch = branch
        self._ref = ref
        self._operation = operation
        self._properties = dict(properties or {})
        self._snapshot_id = snapshot_id if snapshot_id is not None else metadata.new_snapshot_id()
        self._name = name or str(uuid.uuid4())
        self._known = known
        self._added: list[NewFile] = []
        self._removed: dict[tuple[str, int | None], LiveFile] = {}
        self._rewritten: set[str] = set()

    @property
    def parent(self) -> Snapshot | None:
        """The snapshot that this one is built on; None on an empty table."""
        return self._table.metadata.snapshot_by_name(self._branch if self._ref else MAIN_BRANCH)

    def add(self, files: Iterable[NewFile]) -> None:
        """Add files that are on storage already."""
        self._added.extend(files)

    def remove(self, files: Iterable[LiveFile]) -> None:
        """Remove live files. Those read from the head's own manifests are found without a search."""
        self._removed.update((file.identity, file) for file in files)

    def rewrite_manifests(self, manifests: Iterable[ManifestFile]) -> None:
        """Move the live entries of manifests of the head to new manifests, with all that the entries say."""
        self._rewritten.update(manifest.manifest_path for manifest in manifests)

    def prepare(self) -> PreparedSnapshot:
        """Write the manifests and the manifest list; the table does not change yet.

        Manifests that lose no file are taken over as they are, those without live files are left out.

        Raises:
            Conflict: a file to be removed is not live at the head.
            Exception: something cannot be written.
            Whatever is raised, nothing stays written; but where it cannot be deleted either, :func:`metadata_files`
            finds what is left.
        """
        paths = _Paths(self._table, self._name)
        try:
            return self._write(paths)
        except BaseException:
            delete_in_order(self._table.io, reversed(paths.given))
            raise

    def _write(self, paths: _Paths) -> PreparedSnapshot:
        io, metadata, parent = self._table.io, self._table.metadata, self.parent
        snapshot_id = self._snapshot_id
        sequence_number = metadata.next_sequence_number()
        first_row = next_row_id(metadata) if metadata.format_version >= 3 else None
        before = read_manifest_list(io, parent) if parent else []
        touched = self._touched(before)
        replaced = set(touched)
        batches = [*self._new_entries(snapshot_id), *self._rewritten_entries(touched, snapshot_id)]
        manifests = [
            manifest
            for (content, spec_id), entries in batches
            for manifest in write_manifests(
                io,
                paths.new_manifest,
                metadata,
                metadata.specs()[spec_id],
                content,
                snapshot_id,
                sequence_number,
                entries,
            )
        ]
        manifests += [manifest for manifest in before if manifest not in replaced and _has_live_files(manifest)]
        manifest_list = paths.new_manifest_list(snapshot_id)
        next_row = write_manifest_list(
            io,
            manifest_list,
            metadata,
            snapshot_id,
            parent.snapshot_id if parent else None,
            sequence_number,
            manifests,
            first_row,
        )
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent.snapshot_id if parent else None,
            sequence_number=sequence_number,
            # The history is in order even where this machine's clock is behind. One more, since PyIceberg puts the
            # time of the clock in place of one that is the same as before.
            timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms + 1),
            manifest_list=manifest_list,
            summary=Summary(self._operation, **self._summary(parent), **self._properties),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row,
            added_rows=None if first_row is None or next_row is None else next_row - first_row,
        )
        return PreparedSnapshot(self._table, self._branch, self._ref, snapshot, tuple(paths.given))

    def _touched(self, before: list[ManifestFile]) -> list[ManifestFile]:
        """Manifests of the head that may hold a removed file, are to be rewritten, or have no counts in their list.

        Lists must tell the counts since version 2, and in version 3 row ids are given out by them.
        """
        known = {manifest.manifest_path for manifest in before}
        holders = {file.manifest.manifest_path for file in self._removed.values()}
        # Where the file was read from is not in the head any more: look wherever it can have gone.
        moved = {
            (file.manifest.content, file.spec_id)
            for file in self._removed.values()
            if file.manifest.manifest_path not in known
        }
        return [
            manifest
            for manifest in before
            if manifest.manifest_path in holders
            or manifest.manifest_path in self._rewritten
            or (manifest.content, manifest.partition_spec_id) in moved
            or None in (manifest[position] for position in _COUNTS)
        ]

    def _new_entries(self, snapshot_id: int) -> Iterator[_Batch]:
        batches: dict[tuple[ManifestContent, int], list[ManifestEntry]] = {}
        for file in self._added:
            is_data = file.data_file.content == DataFileContent.DATA
            content = ManifestContent.DATA if is_data else ManifestContent.DELETES
            batches.setdefault((content, file.spec_id), []).append(added(file, snapshot_id))
        yield from batches.items()

    def _rewritten_entries(self, touched: list[ManifestFile], snapshot_id: int) -> Iterator[_Batch]:
        """Entries of the touched manifests. Small ones end up together: a stream leaves one for each of its commits."""
        batches: dict[tuple[ManifestContent, int], list[ManifestEntry]] = {}
        missing = dict(self._removed)
        for file in read_manifests(self._table.io, touched, known=self._known):
            gone = missing.pop(file.identity, None) is not None
            entry = deleted(file, snapshot_id) if gone else existing(file)
            batches.setdefault((file.manifest.content, file.spec_id), []).append(entry)
        if missing:
            path, _ = next(iter(missing))
            raise Conflict(f"{len(missing)} files to be removed are not live any more, such as {path}.")
        yield from batches.items()

    def _summary(self, parent: Snapshot | None) -> dict[str, str]:
        before: Mapping[str, str] | None = None
        if parent is not None:
            before = parent.summary.additional_properties if parent.summary else {}
        return summarize(
            ((file.partition_key, file.data_file) for file in self._added),
            ((file.partition_key, file.data_file) for file in self._removed.values()),
            before,
        )


class _Paths:
    """Names of one attempt's metadata files; no other attempt uses them."""

    def __init__(self, table: Table, name: str) -> None:
        self._provider = table.location_provider()
        self._attempt = name
        self._numbers = itertools.count()
        self.given: list[str] = []

    def new_manifest(self) -> str:
        return self._new(f"{self._attempt}-m{next(self._numbers)}.avro")

    def new_manifest_list(self, snapshot_id: int) -> str:
        return self._new(f"snap-{snapshot_id}-0-{self._attempt}.avro")

    def _new(self, name: str) -> str:
        self.given.append(self._provider.new_metadata_location(name))
        return self.given[-1]


def metadata_files(table: Table, name: str, snapshot_id: int) -> list[str]:
    """What is on storage of the manifests and the manifest list of an attempt by that name.

    In the order in which they were written. Deleted in the opposite one, they are found again if that ends halfway.
    """
    paths = _Paths(table, name)
    found = []
    while table.io.new_input(path := paths.new_manifest()).exists():
        found.append(path)
    return [*found, paths.new_manifest_list(snapshot_id)]


def _has_live_files(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()
