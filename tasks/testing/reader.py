"""An independent reader: iceberg-rust under DataFusion. It shares no code with what wrote the table."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import cast

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table import Table


def read_rows(table: Table | str, snapshot_id: int | None = None) -> pa.Table:
    """All rows of a table, in no particular order, with position and equality deletes and vectors applied.

    Needs the packages ``datafusion`` and ``pyiceberg-core``.

    Args:
        table: the table as it was loaded, or the location of its metadata file.
        snapshot_id: another snapshot than the current one, such as a branch's head; it is read by its own schema.
    """
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable  # type: ignore[import-untyped]

    location = table if isinstance(table, str) else table.metadata_location
    with tempfile.TemporaryDirectory() as folder:
        if snapshot_id is not None:
            location = _at_snapshot(location, snapshot_id, Path(folder))
        context = SessionContext()
        provider = IcebergDataFusionTable(identifier=["ns", "t"], metadata_location=location, file_io_properties={})
        context.register_table("t", provider)
        return cast(pa.Table, context.sql("select * from t").to_arrow_table())


def _at_snapshot(location: str, snapshot_id: int, folder: Path) -> str:
    """Metadata whose current snapshot and schema are others: the reader knows no other way to ask for them."""
    with load_file_io(location=location).new_input(location).open() as stream:
        document = json.loads(stream.read())
    document["current-snapshot-id"] = snapshot_id
    schemas = {snapshot["snapshot-id"]: snapshot.get("schema-id") for snapshot in document["snapshots"]}
    if schemas.get(snapshot_id) is not None:  # what it is read by
        document["current-schema-id"] = schemas[snapshot_id]
    document["refs"] = {"main": {"snapshot-id": snapshot_id, "type": "branch"}}
    path = folder / "00000-snapshot.metadata.json"
    path.write_text(json.dumps(document))
    return path.as_uri()
