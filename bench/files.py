"""How many files of each kind a table has, and how large they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table

from producer.iceberg.manifest_entry import LiveFile
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests


@dataclass(frozen=True, slots=True)
class Files:
    """Live files and their bytes. Vectors count one by one, and of their Puffin file the part that they are."""

    data: int = 0
    equality_deletes: int = 0
    position_deletes: int = 0
    vectors: int = 0
    data_bytes: int = 0
    delete_bytes: int = 0

    def __add__(self, other: Files) -> Files:
        return Files(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))

    @property
    def deletes(self) -> int:
        """Delete files of every kind."""
        return self.equality_deletes + self.position_deletes + self.vectors

    @classmethod
    def of(cls, table: Table) -> Files:
        """Those of a table's head."""
        return sum((_one(file) for file in live_files(table)), cls())


def live_files(table: Table) -> Iterable[LiveFile]:
    """Files of every kind at a table's head."""
    snapshot = table.current_snapshot()
    return read_manifests(table.io, read_manifest_list(table.io, snapshot)) if snapshot else ()


def _one(file: LiveFile) -> Files:
    if file.content == DataFileContent.DATA:
        return Files(data=1, data_bytes=file.size)
    if file.is_vector:
        return Files(vectors=1, delete_bytes=file.content_size or 0)
    if file.content == DataFileContent.EQUALITY_DELETES:
        return Files(equality_deletes=1, delete_bytes=file.size)
    return Files(position_deletes=1, delete_bytes=file.size)
