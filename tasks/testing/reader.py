"""An independent reader, iceberg-rust under DataFusion, and a checksum of rows. It shares no code with the writers."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table import Table

if TYPE_CHECKING:
    from datafusion import SessionContext


def read_rows(table: Table | str, snapshot_id: int | None = None) -> pa.Table:
    """Return all rows of a table, in no particular order, with all deletes applied.

    Needs the packages ``datafusion`` and ``pyiceberg-core``.

    Args:
        table: The table as it was loaded, or the location of its metadata file.
        snapshot_id: A snapshot that is not the current one, such as a branch's head; it is read by its own schema.
    """
    location = table if isinstance(table, str) else table.metadata_location
    with tempfile.TemporaryDirectory() as folder:
        if snapshot_id is not None:
            location = _at_snapshot(location, snapshot_id, Path(folder))
        session = open_session(location, "t", {} if isinstance(table, str) else _properties(table))
        return cast(pa.Table, session.sql("select * from t").to_arrow_table())


def open_session(location: str, name: str, properties: Mapping[str, str]) -> SessionContext:
    """Return a session that knows the table of a metadata file by a name; it must outlive its queries."""
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable  # type: ignore[import-untyped]

    session = SessionContext()
    provider = IcebergDataFusionTable(
        identifier=["ns", name], metadata_location=location, file_io_properties=dict(properties)
    )
    session.register_table(name, provider)
    return session


def _at_snapshot(location: str, snapshot_id: int, folder: Path) -> str:
    """Write metadata with another current snapshot and schema: the reader reads no others."""
    with load_file_io(location=location).new_input(location).open() as stream:
        document = json.loads(stream.read())
    document["current-snapshot-id"] = snapshot_id
    schemas = {snapshot["snapshot-id"]: snapshot.get("schema-id") for snapshot in document["snapshots"]}
    if schemas.get(snapshot_id) is not None:
        document["current-schema-id"] = schemas[snapshot_id]
    document["refs"] = {"main": {"snapshot-id": snapshot_id, "type": "branch"}}
    path = folder / "00000-snapshot.metadata.json"
    path.write_text(json.dumps(document))
    return path.as_uri()


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of rows and the sum of their hashes; that of a table is what was written less what was deleted."""

    rows: int = 0
    hashes: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows + other.rows, self.hashes + other.hashes)

    def __sub__(self, other: Checksum) -> Checksum:
        return Checksum(self.rows - other.rows, self.hashes - other.hashes)

    def __str__(self) -> str:
        return f"{self.hashes % 2**64:016x}"

    def figures(self) -> dict[str, object]:
        """Return both for JSON."""
        return {"rows": self.rows, "checksum": str(self)}

    @classmethod
    def of(cls, rows: pa.Table) -> Checksum:
        """Return the checksum of rows in memory, over all their columns in order."""
        from datafusion import SessionContext

        context = SessionContext()
        context.register_table("rows", context.from_arrow(rows))
        return cls.of_table(context, "rows", rows.column_names)

    @classmethod
    def of_table(cls, context: SessionContext, table: str, columns: Iterable[str]) -> Checksum:
        """Return the checksum of a registered table: the exact sum of a 64-bit hash of each row."""
        context.enable_spark_functions()  # xxhash64 is one of them
        hashed = ", ".join(f'"{column}"' for column in columns)
        query = f'select count(*) as n, sum(cast(xxhash64({hashed}) as decimal(38, 0))) as hashes from "{table}"'
        (row,) = context.sql(query).to_arrow_table().to_pylist()
        return cls(row["n"], int(row["hashes"] or 0))


def _properties(table: Table) -> dict[str, str]:
    """Return how the reader reaches the table's storage."""
    known = {name: value for name, value in table.io.properties.items() if isinstance(value, str)}
    virtual = known.get("s3.force-virtual-addressing", "false")
    return {**known, "s3.path-style-access": str(virtual != "true").lower()}
