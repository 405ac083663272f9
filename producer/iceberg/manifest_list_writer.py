"""Writing of manifest lists, for format versions 1 to 3."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile
from pyiceberg.table.metadata import TableMetadata

from producer.iceberg.avro_writer import AvroWriter, put
from producer.iceberg.manifest_reader import first_row_id
from producer.iceberg.table_properties import manifest_codec


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

    In version 3 each data manifest without a first row id gets one, and room for its added and existing rows
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
    put(io, path, writer.finish())
    return next_row_id
