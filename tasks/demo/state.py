"""The table at one moment: its files, and what readers make of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pyiceberg.manifest import DataFileContent

from tasks.demo.reading import Reading, read, scan_with_pyiceberg
from tasks.testing import StreamTable


@dataclass(frozen=True, slots=True)
class Files:
    """How many live files of each kind."""

    data: int
    equality_deletes: int
    position_deletes: int
    vectors: int

    @classmethod
    def of(cls, table: StreamTable) -> Files:
        """Those of a table's head."""
        kinds = Counter("vector" if file.is_vector else file.content for file in table.files())
        return cls(
            kinds[DataFileContent.DATA],
            kinds[DataFileContent.EQUALITY_DELETES],
            kinds[DataFileContent.POSITION_DELETES],
            kinds["vector"],
        )


@dataclass(frozen=True, slots=True)
class State:
    """What a table holds, and how it reads."""

    snapshot_id: int
    files: Files
    #: None when iceberg-rust took too long.
    reading: Reading | None
    #: Rows that PyIceberg reads, or its reason why it does not.
    pyiceberg: int | str

    @classmethod
    def of(cls, table: StreamTable, limit: float) -> State:
        """That of a table's head; readers are stopped after ``limit`` seconds."""
        loaded = table.table
        snapshot = loaded.current_snapshot()
        assert snapshot is not None
        return cls(snapshot.snapshot_id, Files.of(table), read(loaded, limit), scan_with_pyiceberg(loaded))

    def figures(self) -> dict[str, object]:
        """What was measured, for programs; seconds are null when the reader was stopped."""
        seen = self.reading
        return {
            "snapshot_id": self.snapshot_id,
            "data_files": self.files.data,
            "equality_delete_files": self.files.equality_deletes,
            "position_delete_files": self.files.position_deletes,
            "deletion_vectors": self.files.vectors,
            "rows": seen and seen.checksum.rows,
            "checksum": seen and str(seen.checksum),
            "q6_seconds": seen and round(seen.query_seconds, 3),
            "q6_revenue": seen and seen.revenue,
            "scan_seconds": seen and round(seen.scan_seconds, 3),
            "pyiceberg_rows": self.pyiceberg if isinstance(self.pyiceberg, int) else None,
        }
