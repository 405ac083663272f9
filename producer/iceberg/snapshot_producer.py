"""Build one snapshot on top of a branch's head."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from producer.common.errors import Conflict, Reason, Refused
from producer.common.sizes import count_text
from producer.iceberg.manifest_entry import LiveFile, NewFile, added_entry, deleted_entry, existing_entry
from producer.iceberg.manifest_reader import ManifestCache, read_manifest_list, read_manifests
from producer.iceberg.manifest_writer import write_manifest_list, write_manifests
from producer.iceberg.pyiceberg_metadata import next_row_id
from producer.iceberg.snapshots import PendingSnapshot, summarize
from producer.storage.files import delete_in_order

#: Positions of the counts of files and rows in the record of a manifest, which are optional in version 1.
_COUNTS: Final = tuple(
    position
    for position, field in enumerate(MANIFEST_LIST_FILE_SCHEMAS[3].fields)
    if field.name.endswith(("_files_count", "_rows_count"))
)
#: The entries of manifests, by their content and spec id.
_Batches: TypeAlias = dict[tuple[ManifestContent, int], list[ManifestEntry]]


class SnapshotProducer:
    """Collects the files that a snapshot adds and removes, and writes its manifests.

    The snapshot is built on the branch's head in the given table: load the table right before, and for each attempt.

    The branch is the only ref that the snapshot moves; with ``create_branch`` it is created at the head of main if it
    does not exist. The summary has the operation and the properties. The names of all metadata files contain ``name``,
    which is a new one by default, as is the snapshot's id.

    Raises:
        Refused: The branch is missing or is a tag, or the format version is not 1, 2 or 3.
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
        cache: ManifestCache | None = None,
    ) -> None:
        metadata = table.metadata
        if metadata.format_version not in (1, 2, 3):
            sentence = f"Only format versions 1 to 3 are written; the table has version {metadata.format_version}."
            raise Refused(Reason.FORMAT_VERSION, sentence)
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
        self._cache = cache
        self._added: list[NewFile] = []
        self._removed: dict[tuple[str, int | None], LiveFile] = {}
        self._rewritten: set[str] = set()

    @property
    def parent(self) -> Snapshot | None:
        """The parent snapshot; None for the first one of a table."""
        return self._table.metadata.snapshot_by_name(self._branch if self._ref else MAIN_BRANCH)

    def add(self, files: Iterable[NewFile]) -> None:
        """Add files, which are on storage already."""
        self._added.extend(files)

    def remove(self, files: Iterable[LiveFile]) -> None:
        """Remove live files. Those that were read from the head's own manifests are found without a search."""
        self._removed.update((file.identity, file) for file in files)

    def rewrite_manifests(self, manifests: Iterable[ManifestFile]) -> None:
        """Move the live entries of the head's manifests to new manifests, unchanged."""
        self._rewritten.update(manifest.manifest_path for manifest in manifests)

    def prepare(self) -> PendingSnapshot:
        """Write the manifests and the manifest list; the table does not change yet.

        Manifests that lose no file are kept, and those without live files are left out. Whatever error is raised, the
        written files are deleted; if that fails too, :func:`metadata_files` finds those that are left.

        Raises:
            Conflict: A file to remove is not live at the head.
            Exception: A file cannot be written.
        """
        paths = _Paths(self._table, self._name)
        try:
            return self._write(paths)
        except BaseException:
            delete_in_order(self._table.io, reversed(paths.used))
            raise

    def _write(self, paths: _Paths) -> PendingSnapshot:
        io, metadata, parent = self._table.io, self._table.metadata, self.parent
        snapshot_id = self._snapshot_id
        sequence_number = metadata.next_sequence_number()
        first_row = next_row_id(metadata) if metadata.format_version >= 3 else None
        before = read_manifest_list(io, parent) if parent else []
        rewritten = self._manifests_to_rewrite(before)
        replaced = set(rewritten)
        manifests: list[ManifestFile] = []
        for batches in (self._new_entries(snapshot_id), self._rewritten_entries(rewritten, snapshot_id)):
            for (content, spec_id), entries in batches.items():
                spec = metadata.specs()[spec_id]
                manifests += write_manifests(
                    io, paths.new_manifest, metadata, spec, content, snapshot_id, sequence_number, entries
                )
        live = (manifest for manifest in before if manifest.has_added_files() or manifest.has_existing_files())
        manifests += [manifest for manifest in live if manifest not in replaced]
        manifest_list = paths.new_manifest_list(snapshot_id)
        parent_id = parent.snapshot_id if parent else None
        next_row = write_manifest_list(
            io, manifest_list, metadata, snapshot_id, parent_id, sequence_number, manifests, first_row
        )
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=sequence_number,
            # The history stays in order even if this machine's clock is behind. One more, because PyIceberg replaces a
            # time that is the same as before by the clock's.
            timestamp_ms=max(int(time.time() * 1000), metadata.last_updated_ms + 1),
            manifest_list=manifest_list,
            summary=Summary(self._operation, **self._summary(parent), **self._properties),
            schema_id=metadata.current_schema_id,
            first_row_id=first_row,
            added_rows=None if first_row is None or next_row is None else next_row - first_row,
        )
        return PendingSnapshot(self._table, self._branch, self._ref, snapshot, tuple(paths.used))

    def _manifests_to_rewrite(self, before: list[ManifestFile]) -> list[ManifestFile]:
        """Return the head's manifests that may hold a removed file, were asked for, or have no counts in their list.

        Lists need the counts since version 2, and version 3 assigns row ids by them.
        """
        at_head = {manifest.manifest_path for manifest in before}
        holders = {file.manifest.manifest_path for file in self._removed.values()}
        # The manifest of such a file is not in the head any more: search all that may hold it now.
        moved = {
            (file.manifest.content, file.spec_id)
            for file in self._removed.values()
            if file.manifest.manifest_path not in at_head
        }
        return [
            manifest
            for manifest in before
            if manifest.manifest_path in holders
            or manifest.manifest_path in self._rewritten
            or (manifest.content, manifest.partition_spec_id) in moved
            or None in (manifest[position] for position in _COUNTS)
        ]

    def _new_entries(self, snapshot_id: int) -> _Batches:
        batches: _Batches = {}
        for file in self._added:
            is_data = file.data_file.content == DataFileContent.DATA
            content = ManifestContent.DATA if is_data else ManifestContent.DELETES
            batches.setdefault((content, file.spec_id), []).append(added_entry(file, snapshot_id))
        return batches

    def _rewritten_entries(self, rewritten: list[ManifestFile], snapshot_id: int) -> _Batches:
        """Return the entries of rewritten manifests. Small manifests are merged: a stream leaves one per commit."""
        batches: _Batches = {}
        missing = dict(self._removed)
        for file in read_manifests(self._table.io, rewritten, cache=self._cache):
            removed = missing.pop(file.identity, None) is not None
            entry = deleted_entry(file, snapshot_id) if removed else existing_entry(file)
            batches.setdefault((file.manifest.content, file.spec_id), []).append(entry)
        if missing:
            path, _ = next(iter(missing))
            files = count_text(len(missing), "file to be removed is", "files to be removed are")
            raise Conflict(f"{files} not live any more, such as {path}")
        return batches

    def _summary(self, parent: Snapshot | None) -> dict[str, str]:
        before = None if parent is None else parent.summary.additional_properties if parent.summary else {}
        added = ((file.partition_key, file.data_file) for file in self._added)
        removed = ((file.partition_key, file.data_file) for file in self._removed.values())
        return summarize(added, removed, before)


class _Paths:
    """Paths of one attempt's metadata files; no other attempt uses them."""

    def __init__(self, table: Table, name: str) -> None:
        self._provider = table.location_provider()
        self._attempt = name
        self.used: list[str] = []

    def new_manifest(self) -> str:
        return self._new(f"{self._attempt}-m{len(self.used)}.avro")

    def new_manifest_list(self, snapshot_id: int) -> str:
        return self._new(f"snap-{snapshot_id}-0-{self._attempt}.avro")

    def _new(self, name: str) -> str:
        self.used.append(self._provider.new_metadata_location(name))
        return self.used[-1]


def metadata_files(table: Table, name: str, snapshot_id: int) -> list[str]:
    """Return the paths of the manifests that an attempt left on storage, and of its manifest list.

    They are in the order in which they were written. Delete them in reverse: if that is interrupted, the rest is found.
    Name and snapshot id are those that :class:`SnapshotProducer` was given.
    """
    paths = _Paths(table, name)
    found = []
    while table.io.new_input(path := paths.new_manifest()).exists():
        found.append(path)
    return [*found, paths.new_manifest_list(snapshot_id)]
