"""A small stream's table on a store, with the rows that it has."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent

from producer import Fleet, Report, Status
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from tasks.testing import StreamTable, read_rows

_NUMBERS = itertools.count()
CHECKPOINTS, ROWS = 4, 200


@dataclass(frozen=True)
class StreamedTable:
    """A table that a stream wrote, and the rows that it has to have."""

    table: StreamTable
    expected: list[tuple[int, str]]

    @classmethod
    def write(cls, catalog: Catalog, location: str, version: int = 2, **properties: str) -> StreamedTable:
        """Write a table: each checkpoint replaces rows of those before it."""
        catalog.create_namespace_if_not_exists("db")
        schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
        table = StreamTable.create(
            catalog,
            f"db.t{next(_NUMBERS)}",
            schema,
            format_version=version,
            location=location,
            properties=properties,
        )
        random, expected = np.random.default_rng(7), dict[int, str]()
        for number in range(CHECKPOINTS):
            batch = {int(key): f"{key} of {number}" for key in random.choice(2 * ROWS, ROWS, replace=False)}
            expected |= cls(table, []).upsert(batch)
        return cls(table, sorted(expected.items()))

    def upsert(self, batch: dict[int, str]) -> dict[int, str]:
        """Write a checkpoint more, which is returned."""
        self.table.upsert(pa.table({"id": list(batch), "name": list(batch.values())}), ["id"])
        return batch

    def run(self, operation: str, **options: str) -> Report:
        """Run a job to its end, which is a commit."""
        report: Report = getattr(Fleet(), operation)(
            self.table.identifier, catalog=self.table.catalog.name, **options
        ).wait()
        assert report.status is Status.COMMITTED, report
        return report

    def convert_and_compact(self) -> None:
        """Plan, convert and compact, and check what is read after each."""
        assert Fleet().plan(self.table.identifier, catalog=self.table.catalog.name).units
        self.run("convert")
        assert not any(file.content == DataFileContent.EQUALITY_DELETES for file in self.table.files())
        assert self.scanned() == self.expected
        self.run("compact", tier="full")
        assert self.scanned() == self.expected

    def scanned(self) -> list[tuple[int, str]]:
        """Return the rows as PyIceberg reads them, by the catalog's access; it applies no equality deletes."""
        return _sorted(self.table.table.scan().to_arrow())

    def read_independently(self) -> list[tuple[int, str]]:
        """Return the rows as iceberg-rust reads them."""
        return _sorted(read_rows(self.table.table))

    def paths(self) -> set[str]:
        """Return the paths of all files of all snapshots: data and delete files, manifests and their lists."""
        table = self.table.table
        found = set[str]()
        for snapshot in table.snapshots():
            manifests = read_manifest_list(table.io, snapshot)
            found |= {snapshot.manifest_list, *(manifest.manifest_path for manifest in manifests)}
            found |= {file.path for file in read_manifests(table.io, manifests)}
        return found

    def metadata_files(self) -> set[str]:
        """Return the paths of the table's metadata files."""
        table = self.table.table
        return {table.metadata_location, *(entry.metadata_file for entry in table.metadata.metadata_log)}


def _sorted(rows: pa.Table) -> list[tuple[int, str]]:
    return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))
