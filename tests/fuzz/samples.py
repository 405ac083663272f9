"""Valid bytes of every kind that is read from outside: what a small table of format version 3 is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.manifest import DataFileContent, ManifestFile
from pyiceberg.table import Table

from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import read_manifest_list
from producer.model.plan import VectorRef
from tasks.testing import StreamTable, local_catalog
from tests.support.memoryio import MemoryIO

POSITIONS = tuple(range(0, 900, 3)) + tuple(range(1000, 1400)) + ((1 << 33) + 5,)


@dataclass(frozen=True)
class Samples:
    """One table and all of its files, in memory."""

    table: Table
    #: Contents by path, as the table spells it.
    files: dict[str, bytes]
    manifests: tuple[ManifestFile, ...]
    live: tuple[LiveFile, ...]
    vector: VectorRef
    #: The file that the vector is for.
    target: str

    @classmethod
    def make(cls, folder: Path) -> Samples:
        """Write the table into a folder."""
        catalog = local_catalog(folder)
        rows = pa.table({"id": pa.array(range(200), pa.int64()), "name": [f"name {i % 7}" for i in range(200)]})
        stream = StreamTable.create(catalog, "db.t", rows.schema, format_version=2)
        stream.append(rows)
        (first,) = stream.data_files()
        stream.delete_positions({first.path: [1, 2, 50]})
        stream.upgrade(3)
        stream.append(rows)
        second = max(stream.data_files(), key=lambda file: file.sequence_number)
        stream.delete_where_equal(pa.table({"id": [3, 4, 5], "name": ["name 3", "name 4", None]}), ["id", "name"])
        stream.delete_vector({second.path: POSITIONS})
        table = stream.table
        snapshot = table.current_snapshot()
        assert snapshot is not None
        manifests = tuple(read_manifest_list(table.io, snapshot))
        live = tuple(stream.files())
        paths = {table.metadata_location, snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)}
        paths |= {file.path for file in live}
        files = {path: Path(path.removeprefix("file://")).read_bytes() for path in paths}
        (vector,) = (file for file in live if file.is_vector)
        ref = VectorRef(
            path=vector.path,
            offset=vector.content_offset or 0,
            size=vector.content_size or 0,
            cardinality=vector.record_count,
        )
        catalog.close()
        return cls(table, files, manifests, live, ref, second.path)

    def io(self, **changed: bytes) -> MemoryIO:
        """A storage that holds the table."""
        io = MemoryIO()
        io.files = {**self.files, **changed}
        return io

    def of(self, content: DataFileContent) -> Iterator[LiveFile]:
        """The table's files of a kind that lie in Parquet."""
        return (file for file in self.live if file.content == content and not file.is_vector)

    @property
    def manifest_list(self) -> str:
        """Where the current list lies."""
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.manifest_list
