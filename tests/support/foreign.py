"""Manifests as other engines write them: every live entry moved to new manifests, with what they leave out."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from producer.iceberg.manifest_entry import existing_entry
from producer.iceberg.manifest_writer import write_manifest_list, write_manifests
from producer.iceberg.pyiceberg_metadata import next_row_id
from producer.iceberg.snapshots import PendingSnapshot
from tasks.testing import StreamTable


def rewrite_manifests(
    stream: StreamTable,
    edit: Callable[[ManifestEntry], object] = lambda entry: None,
    edit_listed: Callable[[ManifestFile], object] = lambda manifest: None,
) -> None:
    """Commit a snapshot whose manifests have the same live files, as existing entries.

    Args:
        stream: The table.
        edit: Changes an entry before it is written.
        edit_listed: Changes what the manifest list says of a manifest before it is written.
    """
    table = stream.table
    metadata, parent = table.metadata, table.current_snapshot()
    assert parent is not None
    snapshot_id, sequence_number = metadata.new_snapshot_id(), metadata.next_sequence_number()
    entries: dict[tuple[ManifestContent, int], list[ManifestEntry]] = defaultdict(list)
    for file in stream.files():
        edit(entry := existing_entry(file))
        entries[file.manifest.content, file.spec_id].append(entry)
    folder = table.location_provider()
    manifests = [
        manifest
        for (content, spec_id), batch in entries.items()
        for manifest in write_manifests(
            table.io,
            lambda: folder.new_metadata_location(f"{uuid.uuid4()}-m0.avro"),
            metadata,
            metadata.specs()[spec_id],
            content,
            snapshot_id,
            sequence_number,
            batch,
        )
    ]
    for manifest in manifests:
        edit_listed(manifest)
    first_row = next_row_id(metadata) if metadata.format_version >= 3 else None
    path = folder.new_metadata_location(f"snap-{snapshot_id}-0-{uuid.uuid4()}.avro")
    next_row = write_manifest_list(
        table.io, path, metadata, snapshot_id, parent.snapshot_id, sequence_number, manifests, first_row
    )
    summary = parent.summary.additional_properties if parent.summary else {}
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent.snapshot_id,
        sequence_number=sequence_number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=path,
        summary=Summary(Operation.REPLACE, **{k: v for k, v in summary.items() if k.startswith("total-")}),
        schema_id=metadata.current_schema_id,
        first_row_id=first_row,
        added_rows=None if first_row is None or next_row is None else next_row - first_row,
    )
    PendingSnapshot(table, "main", metadata.refs["main"], snapshot, ()).commit()
