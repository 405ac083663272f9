"""Files that the metadata of a table refers to, and those below the table that it does not refer to."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table


def referenced(table: Table, *, deleted: bool = True) -> Iterator[str]:
    """Yield the path of every file that some snapshot refers to, manifests and manifest lists too.

    Args:
        deleted: Whether a file counts that a manifest only says to be deleted; its snapshot may have expired.
    """
    for snapshot in table.metadata.snapshots:
        yield local_path(table, snapshot.manifest_list)
        for manifest in _records(table, snapshot.manifest_list):
            yield local_path(table, manifest["manifest_path"])
            for entry in _records(table, manifest["manifest_path"]):
                if deleted or entry["status"] != ManifestEntryStatus.DELETED:
                    yield local_path(table, entry["data_file"]["file_path"])


def unreferenced(table: Table, *, metadata_files: bool = True, deleted: bool = False) -> set[str]:
    """Return the paths below the table that its metadata does not refer to; the records of jobs and their folders too.

    Args:
        metadata_files: Whether metadata files that are not in the metadata's log count. A commit that is cut off leaves
            one: it is its catalog's to delete.
        deleted: As for `referenced`; then such a file is not returned.
    """
    folder = Path(local_path(table, table.metadata.location))
    known = set(referenced(table, deleted=deleted))
    known |= {local_path(table, entry.metadata_file) for entry in table.metadata.metadata_log}
    known.add(local_path(table, table.metadata_location))
    found = {path for path in folder.rglob("*") if path.is_file() or "_icefleet" in path.parts}
    if not metadata_files:
        found = {path for path in found if not path.name.endswith(".metadata.json")}
    return {str(path) for path in found} - known


def local_path(table: Table, location: str) -> str:
    """Return the path of a file of a table; on an object store it begins with the bucket."""
    io = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO
    return io.parse_location(location, table.io.properties)[2]


def _records(table: Table, location: str) -> Iterator[Any]:
    if location.startswith("s3://"):
        content = table.io.new_input(location).open().read()
    else:
        content = Path(local_path(table, location)).read_bytes()
    yield from fastavro.reader(BytesIO(content))
