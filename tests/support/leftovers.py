"""Whether anything lies at a table that no metadata refers to."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.table import Table

from producer.iceberg.manifest_reader import read_manifest_list, read_manifests


def leftovers(table: Table) -> set[str]:
    """Files below the table's location that none of its snapshots refers to; folders of jobs included.

    Metadata files are the catalog's and not looked at.
    """
    folder = Path(table.metadata.location.removeprefix("file://"))
    known: set[str] = set()
    for snapshot in table.metadata.snapshots:
        known.add(snapshot.manifest_list)
        manifests = read_manifest_list(table.io, snapshot)
        known |= {manifest.manifest_path for manifest in manifests}
        known |= {file.path for file in read_manifests(table.io, manifests)}
    known = {path.removeprefix("file://") for path in known}
    found = {str(path) for path in folder.rglob("*") if path.is_file() and not path.name.endswith((".crc", ".json"))}
    jobs = {str(path) for path in (folder / "_icefleet").rglob("*")} if (folder / "_icefleet").exists() else set()
    return (found | jobs) - known
