"""Tables of very many small files: the files of a few are linked to under many names, so that making them is quick."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType

from bench.data import GeneratedTable
from bench.place import local_path
from producer.iceberg.manifest_entry import NewFile, new_data_file
from tasks.testing import RowDelta, StreamTable
from tasks.testing.files import write_parquet
from tasks.testing.reader import Checksum

#: Different data files, and delete files: the keys of each of these come from one of those, or from nowhere.
_SEEDS: Final = 16
#: How many delete files have keys that some data files have; bounds tell nobody which.
_HITTING: Final = 4
_ROWS: Final = 1000
_DELETED: Final = 5
_OTHERS: Final = 15
_MOST: Final = 1 << 40
_COLUMNS: Final[Mapping[str, IcebergType]] = {
    "id": LongType(),
    "device": LongType(),
    **{f"count_{number}": LongType() for number in range(4)},
    **{f"name_{number}": StringType() for number in range(3)},
    **{f"value_{number}": DoubleType() for number in range(3)},
}
_SCHEMA: Final = Schema(
    *(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(_COLUMNS.items(), 1))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide:
    """How many files there are."""

    partitions: int
    commits: int
    #: That each commit adds to each partition.
    files: int

    @property
    def data_files(self) -> int:
        """In all."""
        return self.partitions * self.commits * self.files

    @property
    def delete_files(self) -> int:
        """In all: each commit adds one to every second partition."""
        return self.partitions * self.commits // 2

    def recipe(self, catalog: Catalog) -> Iterator[GeneratedTable]:
        """A table that a stream has filled: each commit has data files and equality deletes, and a manifest of each."""
        spec = PartitionSpec(PartitionField(2, 1000, BucketTransform(self.partitions), "device_bucket"))
        table = StreamTable.create(catalog, "bench.wide", _SCHEMA, spec=spec)
        seeds = _Seeds(table)
        reached: Counter[int] = Counter()
        #: Of each partition, how many files of each seed wait for a delete file of theirs.
        waiting: list[Counter[int]] = [Counter() for _ in range(self.partitions)]
        for commit in range(self.commits):
            added = []
            for partition in range(self.partitions):
                if (commit + partition) % 2 == 0:
                    seed = (commit // 2 + partition) % _SEEDS
                    added.append(seeds.deletes(partition, seed))
                    if seed < _HITTING:  # what is older than the commit
                        reached[seed] += waiting[partition].pop(seed, 0)
                chosen = [(commit * self.files + number) % _SEEDS for number in range(self.files)]
                added += [seeds.data(partition, seed) for seed in chosen]
                waiting[partition].update(chosen)
            table.commit(RowDelta(added))
        deleted_rows = sum((_times(seeds.lost[seed], count) for seed, count in reached.items()), Checksum())
        facts = {"positions": _DELETED * reached.total(), "delete_files": self.delete_files}
        yield GeneratedTable(table, seeds.truth - deleted_rows, facts)


class _Seeds:
    """The files that are linked to."""

    def __init__(self, table: StreamTable) -> None:
        loaded = table.table
        self._location = loaded.metadata.location
        self._folder = local_path(table.catalog, self._location)
        self._spec_id = loaded.spec().spec_id
        self._count = 0
        self._data: list[dict[str, Any]] = []
        self._deletes: list[dict[str, Any]] = []
        self._rows: list[Checksum] = []
        #: What a data file's rows that its delete file names come to.
        self.lost: list[Checksum] = []
        self.truth = Checksum()
        random = np.random.default_rng(100)
        keys = _SCHEMA.select("id")
        for seed in range(_SEEDS):
            rows = _random_rows(random)
            deleted = rows.slice(0, _DELETED)
            other = pa.array(random.integers(0, _MOST, _OTHERS))
            hit = deleted["id"] if seed < _HITTING else pa.chunked_array([random.integers(0, _MOST, _DELETED)])
            named = pa.table({"id": pa.chunked_array([*hit.chunks, other])})
            paths = [f"{self._location}/seeds/{kind}-{seed}.parquet" for kind in ("data", "deletes")]
            self._data.append(write_parquet(loaded.io, paths[0], _SCHEMA, rows, {}))
            self._deletes.append(write_parquet(loaded.io, paths[1], keys, named, {}))
            self._rows.append(Checksum.of(rows))
            self.lost.append(Checksum.of(deleted))

    def data(self, partition: int, seed: int) -> NewFile:
        """A data file of a partition."""
        self.truth += self._rows[seed]
        return self._linked(self._data[seed], partition, content=DataFileContent.DATA)

    def deletes(self, partition: int, seed: int) -> NewFile:
        """An equality delete file of a partition."""
        return self._linked(self._deletes[seed], partition, content=DataFileContent.EQUALITY_DELETES, equality_ids=[1])

    def _linked(self, written: dict[str, Any], partition: int, **fields: Any) -> NewFile:
        self._count += 1
        seed = written["file_path"].removeprefix(f"{self._location}/")
        path = f"data/device_bucket={partition}/{self._count:08d}-{Path(seed).name}"
        (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
        os.link(self._folder / seed, self._folder / path)
        described = {**written, "file_path": f"{self._location}/{path}", "partition": Record(partition), **fields}
        return NewFile(new_data_file(**described), self._spec_id)


def _random_rows(random: np.random.Generator) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, kind in _COLUMNS.items():
        values = random.integers(0, _MOST if name == "id" else 1000, _ROWS)
        if isinstance(kind, StringType):
            columns[name] = np.char.add("name-", values.astype(str))
        else:
            columns[name] = values / 1000 if isinstance(kind, DoubleType) else values
    return pa.table(columns).cast(schema_to_pyarrow(_SCHEMA, include_field_ids=False))


def _times(checksum: Checksum, count: int) -> Checksum:
    return Checksum(checksum.rows * count, checksum.hashes * count)
