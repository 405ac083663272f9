"""A conversion unit made by hand, the rows it deletes by the specification, and what the engine wrote."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.types import LongType, PrimitiveType, StringType
from pyspark.sql import SparkSession

from producer.model.plan import PositionDeleteFile, VectorRef
from workers.formats.deletion_vector import DeletionVector
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.formats.position_deletes import read_position_deletes
from workers.formats.puffin import PuffinWriter, read_vector
from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes, KeyColumn
from workers.model.units import ConversionResult, ConversionUnit
from workers.operations.convert import convert
from workers.runtime.machine import Budget
from workers.runtime.scratch import scratch

Row = tuple[Any, ...]

#: Columns of all data files: id, name, type.
COLUMNS: list[tuple[int, str, pa.DataType, PrimitiveType]] = [
    (1, "id", pa.int64(), LongType()),
    (2, "name", pa.string(), StringType()),
    (3, "group", pa.int64(), LongType()),
]
SMALL = Budget(2, 512 << 20, broadcast_bytes=32 << 20, batch_bytes=4 << 20, rows_bytes=8 << 20, index_bytes=8 << 20)
#: Nothing is small enough to be broadcast.
TINY = replace(SMALL, broadcast_bytes=512, batch_bytes=1, index_bytes=0)


@dataclass
class _Delete:
    ids: tuple[int, ...]
    is_global: bool
    file: ContentFile
    rows: list[Row]


@dataclass
class Case:
    """Data files of three columns, deletes of any of them, and what was deleted before."""

    folder: Path
    version: int = 2
    granularity: Any = "file"
    rows: list[list[Row]] = field(default_factory=list)
    data: list[ContentFile] = field(default_factory=list)
    vectors: dict[int, list[int]] = field(default_factory=dict)
    deletes: list[_Delete] = field(default_factory=list)
    positions: list[tuple[PositionDeleteFile, list[tuple[str, int]]]] = field(default_factory=list)

    def add(self, rows: Sequence[Row], seq: int, scope: int = 0, row_group_size: int = 1 << 20) -> str:
        """Add a data file; scopes must ascend."""
        path = self.folder / f"data-{len(self.data):04d}.parquet"
        _write(path, COLUMNS, rows, row_group_size)
        file = ContentFile(len(self.data), str(path), seq, scope, len(rows), path.stat().st_size)
        self.rows.append([tuple(row) for row in rows])
        self.data.append(file)
        return str(path)

    def delete(self, ids: tuple[int, ...], rows: Sequence[Row], seq: int, scope: int = -1) -> str:
        """Add an equality delete file; global where it has no scope."""
        path = self.folder / f"delete-{len(self.deletes):04d}.parquet"
        columns = [next(column for column in COLUMNS if column[0] == field_id) for field_id in ids]
        _write(path, columns, rows)
        file = ContentFile(len(self.deletes), str(path), seq, max(scope, 0), len(rows), path.stat().st_size)
        self.deletes.append(_Delete(ids, scope < 0, file, [tuple(row) for row in rows]))
        return str(path)

    def delete_positions(self, rows: Sequence[tuple[str, int]], seq: int, scope: int = 0, own: bool = False) -> str:
        """Add a position delete file; with ``own`` its only data file is known from the manifest."""
        path = str(self.folder / f"positions-{len(self.positions):04d}.parquet")
        with ParquetPositionDeleteWriter(PyArrowFileIO(), path, {}) as writer:
            for data_file in sorted({name for name, _ in rows}):
                writer.write(data_file, np.array(sorted(pos for name, pos in rows if name == data_file)))
            writer.close(scope)
        self.positions.append(
            (
                PositionDeleteFile(path=path, sequence_number=seq, scope=scope, referenced=rows[0][0] if own else None),
                list(rows),
            )
        )
        return path

    def vector(self, data_file: str, positions: Sequence[int]) -> None:
        """Give a data file a deletion vector."""
        self.vectors[self._index(data_file)] = list(positions)

    def unit(self) -> ConversionUnit:
        """The unit, with vectors written."""
        keys = {column[0]: KeyColumn(column[0], column[3]) for column in COLUMNS}
        groups: dict[tuple[tuple[int, ...], bool], list[ContentFile]] = {}
        for delete in self.deletes:
            groups.setdefault((delete.ids, delete.is_global), []).append(delete.file)
        return ConversionUnit(
            name="case",
            format_version=self.version,
            deletes=DeleteSet(
                data_files=tuple(replace(file, vector=self._write_vector(file)) for file in self.data),
                equality=tuple(
                    EqualityDeletes(tuple(keys[n] for n in ids), is_global, tuple(files))
                    for (ids, is_global), files in groups.items()
                ),
                positions=tuple(file for file, _ in self.positions),
                name_mapping=None,
            ),
            destinations=tuple(str(self.folder / self._destination(file)) for file in self.data),
            puffin_destination=str(self.folder / "out-{task}.puffin"),
            properties={},
        )

    def convert(
        self, spark: object, budget: Budget = SMALL, io: FileIO | None = None, progress: Any = None
    ) -> ConversionResult:
        """Run the engine."""
        assert isinstance(spark, SparkSession)
        with scratch(self.folder / "scratch") as folder:
            return convert(self.unit(), io or PyArrowFileIO(), spark, budget, folder, progress)

    def check(self, spark: object, budget: Budget = SMALL) -> ConversionResult:
        """Run the engine and compare all that it wrote with what it should have."""
        result = self.convert(spark, budget)
        new, before = self.expected(), [self.before(file) for file in self.data]
        fresh = {index: positions - before[index] for index, positions in enumerate(new) if positions - before[index]}
        if self.version < 3:
            assert self.written(result) == fresh
            assert not result.vectors
        else:
            assert self.merged(result) == {index: fresh[index] | before[index] for index in fresh}
            assert {self._index(v.target): v.new_positions for v in result.vectors} == {
                n: len(rows) for n, rows in fresh.items()
            }
            assert not result.deletes
        assert result.new_positions == sum(map(len, fresh.values()))
        return result

    def expected(self) -> list[set[int]]:
        """For each data file the positions that its equality deletes remove (spec, Scan Planning)."""
        places = {column[0]: place for place, column in enumerate(COLUMNS)}
        found: list[set[int]] = [set() for _ in self.data]
        for delete in self.deletes:
            keys = set(delete.rows)
            for data in self.data:
                if data.sequence_number < delete.file.sequence_number and (
                    delete.is_global or data.scope == delete.file.scope
                ):
                    found[data.index].update(
                        position
                        for position, row in enumerate(self.rows[data.index])
                        if tuple(row[places[field_id]] for field_id in delete.ids) in keys
                    )
        return found

    def before(self, data: ContentFile) -> set[int]:
        """What was deleted of a data file before; position delete files do not count beside a vector."""
        if data.index in self.vectors:
            return set(self.vectors[data.index])
        return {
            position
            for file, rows in self.positions
            if file.scope == data.scope and file.sequence_number >= data.sequence_number
            for path, position in rows
            if path == data.path
        }

    def written(self, result: ConversionResult) -> dict[int, set[int]]:
        """The positions in the staged position delete files, each of which is described rightly."""
        found: dict[int, set[int]] = {}
        for staged in result.deletes:
            rows = pa.Table.from_batches(read_position_deletes(PyArrowFileIO(), staged.path)).to_pylist()
            keys = [(row["file_path"], row["pos"]) for row in rows]
            assert keys == sorted(set(keys))
            assert staged.records == len(keys)
            assert staged.lower == (keys[0][0], min(p for _, p in keys))
            assert staged.upper == (keys[-1][0], max(p for _, p in keys))
            assert staged.targets == tuple(sorted({path for path, _ in keys}))
            assert {self.data[self._index(path)].scope for path in staged.targets} == {staged.scope}
            assert staged.size == Path(staged.path).stat().st_size
            for path, position in keys:
                found.setdefault(self._index(path), set()).add(position)
        return found

    def merged(self, result: ConversionResult) -> dict[int, set[int]]:
        """The positions in the staged vectors."""
        found: dict[int, set[int]] = {}
        for staged in result.vectors:
            assert staged.size == Path(staged.path).stat().st_size
            index = self._index(staged.target)
            assert index not in found
            assert staged.scope == self.data[index].scope
            vector = read_vector(PyArrowFileIO(), staged.ref, staged.target)
            found[index] = set(vector.positions().tolist())
        return found

    def outputs(self) -> list[str]:
        """Names of all files that the engine may have left."""
        return sorted(p.name for p in self.folder.iterdir() if p.name.startswith(("out-", "scope-")))

    def _destination(self, file: ContentFile) -> str:
        by_partition = self.granularity == "partition"
        return f"scope-{file.scope:04d}.parquet" if by_partition else f"out-{file.index:04d}.parquet"

    def _index(self, path: str) -> int:
        return next(file.index for file in self.data if file.path == path)

    def _write_vector(self, file: ContentFile) -> VectorRef | None:
        if file.index not in self.vectors:
            return None
        path = self.folder / f"earlier-{file.index:04d}.puffin"
        path.unlink(missing_ok=True)
        positions = self.vectors[file.index]
        with PuffinWriter(PyArrowFileIO(), str(path)) as writer:
            offset, size = writer.add_vector(file.path, DeletionVector.of(positions))
            writer.close()
        return VectorRef(path=str(path), offset=offset, size=size, cardinality=len(positions))


def _write(
    path: Path, columns: list[tuple[int, str, pa.DataType, PrimitiveType]], rows: Sequence[Row], size: int = 1 << 20
) -> None:
    schema = pa.schema([pa.field(name, type_, metadata={"PARQUET:field_id": str(n)}) for n, name, type_, _ in columns])
    arrays = [pa.array([row[place] for row in rows], type_) for place, (_, _, type_, _) in enumerate(columns)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path, row_group_size=size)
