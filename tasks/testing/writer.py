"""Files of a table that are written to storage and not yet committed."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import LiveFile, NewFile, new_data_file
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.iceberg.partitions import is_unpartitioned, partition_path
from producer.model.plan import VectorRef
from producer.planning.units import vector_ref
from tasks.operations.convert.commit import position_delete_file, vector_file
from tasks.testing.files import project, split_by_partition, write_parquet
from workers.formats.deletion_vector import DeletionVector
from workers.formats.parquet.position_delete_writer import ParquetPositionDeleteWriter
from workers.formats.puffin import PuffinWriter, read_vector

#: Positions by data file: by its path when it is live, or the file itself when it is of the same commit.
Positions: TypeAlias = Mapping[str | NewFile, Sequence[int]]


def as_names(values: Iterable[Any]) -> list[Any]:
    """Return a list of names or ids; a text is one name, and not a list of its letters."""
    return [values] if isinstance(values, str) else list(values)


@dataclass(frozen=True)
class RowDelta:
    """The files that one commit adds and removes; they are on storage already."""

    added: Sequence[NewFile] = ()
    removed: Sequence[LiveFile] = ()

    @property
    def operation(self) -> Operation:
        """The operation that Iceberg's Java implementation records for such a change."""
        contents = {file.data_file.content for file in self.added}
        if contents and contents <= {DataFileContent.DATA} and not self.removed:
            return Operation.APPEND
        if contents and DataFileContent.DATA not in contents:
            return Operation.DELETE
        return Operation.OVERWRITE


class TableWriter:
    """Writes data files and deletes of one table for commits that are made of several."""

    def __init__(self, catalog: Catalog, identifier: str) -> None:
        self.catalog = catalog
        self.identifier = identifier

    @property
    def table(self) -> Table:
        """The table as the catalog has it now; evolve its schema and specs through it."""
        return self.catalog.load_table(self.identifier)

    def files(self, branch: str = MAIN_BRANCH) -> list[LiveFile]:
        """Live files of every kind at a branch's head."""
        table = self.table
        snapshot = table.metadata.snapshot_by_name(branch)
        return list(read_manifests(table.io, read_manifest_list(table.io, snapshot))) if snapshot else []

    def data_files(self, branch: str = MAIN_BRANCH) -> list[LiveFile]:
        """Live data files, oldest first."""
        files = [file for file in self.files(branch) if file.content == DataFileContent.DATA]
        return sorted(files, key=lambda file: (file.sequence_number, file.path))

    def delete_files(self, branch: str = MAIN_BRANCH) -> list[LiveFile]:
        """Live delete files and vectors, oldest first."""
        files = [file for file in self.files(branch) if file.content != DataFileContent.DATA]
        return sorted(files, key=lambda file: (file.sequence_number, file.path, file.content_offset or 0))

    def write_data(
        self,
        rows: pa.Table,
        *,
        field_ids: bool = True,
        spec_id: int | None = None,
        omit: Collection[str] = (),
        row_group_size: int | None = None,
        sequence_number: int | None = None,
    ) -> list[NewFile]:
        """Write one data file for each partition of the rows.

        Args:
            rows: Columns by name; columns of the schema that are missing are missing in the files too.
            field_ids: Whether columns carry field ids; without them the table gets a name mapping if it has none.
            spec_id: A historic spec; the default spec if not given.
            omit: Columns that only decide the partition and are not written.
            row_group_size: Rows of a Parquet row group.
            sequence_number: An explicit data sequence number, as a compaction gives.
        """
        if not field_ids:
            self._ensure_name_mapping()
        table, spec = self._table_and_spec(spec_id)
        _, complete = project(table.schema(), rows)
        omit = as_names(omit)
        files = []
        for partition, part in split_by_partition(complete, spec, table.schema()):
            schema, columns = project(table.schema(), part, [name for name in part.column_names if name not in omit])
            path = self._new_path(table, spec, partition, ".parquet")
            written = write_parquet(
                table.io,
                path,
                schema,
                columns,
                table.metadata.properties,
                field_ids=field_ids,
                row_group_size=row_group_size,
            )
            data_file = new_data_file(content=DataFileContent.DATA, partition=partition, **written)
            files.append(NewFile(data_file, spec.spec_id, sequence_number))
        return files

    def write_equality_deletes(
        self,
        keys: pa.Table,
        ids: Sequence[int | str],
        *,
        partition: Record | None = None,
        spec_id: int | None = None,
        only_keys: bool = False,
    ) -> list[NewFile]:
        """Write equality deletes: one file for a given partition or an unpartitioned spec, else one per partition.

        Args:
            keys: The deleted keys.
            ids: The key columns, in the order of the manifest entry.
            partition: The partition of the deletes; by default it follows from the columns of ``keys``.
            spec_id: A historic spec; under one without fields the deletes are global.
            only_keys: Whether only the key columns are written; else all columns of ``keys``.
        """
        table, spec = self._table_and_spec(spec_id)
        schema = table.schema()
        equality_ids = [self.field_id(column) for column in as_names(ids)]
        _, complete = project(schema, keys)
        if partition is None and is_unpartitioned(spec):
            partition = Record(*(None for _ in spec.fields))
        parts = split_by_partition(complete, spec, schema) if partition is None else [(partition, complete)]
        paths = [schema.find_column_name(field_id) or "" for field_id in equality_ids] if only_keys else None
        files = []
        for record, part in parts:
            columns_schema, columns = project(schema, part, paths)
            path = self._new_path(table, spec, record, "-deletes.parquet")
            written = write_parquet(table.io, path, columns_schema, columns, table.metadata.properties)
            data_file = new_data_file(
                content=DataFileContent.EQUALITY_DELETES, partition=record, equality_ids=equality_ids, **written
            )
            files.append(NewFile(data_file, spec.spec_id))
        return files

    def write_position_deletes(
        self, positions: Positions, *, by_partition: bool = False, branch: str = MAIN_BRANCH
    ) -> list[NewFile]:
        """Write position delete files (format version 2), one for each data file or one for each partition."""
        table = self.table
        # Spec ids and tuples need not be comparable, their text is.
        rows = sorted(self._rows(positions, branch), key=lambda rows: (repr(rows[0].partition_key), _path(rows[0])))
        files = []
        for _, group in groupby(rows, key=lambda rows: repr(rows[0].partition_key) if by_partition else _path(rows[0])):
            members = list(group)
            first = members[0][0]
            record = first.data_file.partition
            path = self._new_path(table, table.specs()[first.spec_id], record, "-deletes.parquet")
            with ParquetPositionDeleteWriter(table.io, path, table.metadata.properties) as writer:
                for file, deleted in members:
                    writer.write(_path(file), deleted)
                staged = writer.close(0)
            if by_partition:
                staged = staged.model_copy(update={"targets": ()})
            files.append(position_delete_file(staged, record, first.spec_id))
        return files

    def write_vectors(self, positions: Positions, *, branch: str = MAIN_BRANCH) -> RowDelta:
        """Write deletion vectors (format version 3) into one Puffin file; each includes its data file's old vector."""
        table = self.table
        old = {file.referenced_data_file: file for file in self.files(branch) if file.is_vector}
        rows = self._rows(positions, branch)
        path = self._new_path(table, UNPARTITIONED_PARTITION_SPEC, Record(), "-deletes.puffin")
        vectors = []
        with PuffinWriter(table.io, path) as writer:
            for file, deleted in rows:
                vector = DeletionVector.of(deleted)
                if (before := old.get(_path(file))) is not None:
                    vector = vector.union(read_vector(table.io, vector_ref(before), _path(file)))
                offset, length = writer.add_vector(_path(file), vector)
                vectors.append(VectorRef(path=path, offset=offset, size=length, cardinality=vector.cardinality))
            size = writer.close()
        added = [
            vector_file(vector, size, _path(file), file.data_file.partition, file.spec_id)
            for (file, _), vector in zip(rows, vectors, strict=True)
        ]
        return RowDelta(added, [old[_path(file)] for file, _ in rows if _path(file) in old])

    def field_id(self, column: int | str) -> int:
        """Return the id of a column of the current schema by its dotted name."""
        return column if isinstance(column, int) else self.table.schema().find_field(column).field_id

    def _rows(self, positions: Positions, branch: str) -> list[tuple[LiveFile | NewFile, npt.NDArray[np.int64]]]:
        """Return data files with their deleted positions, ascending and without repeats."""
        live = {file.path: file for file in self.data_files(branch)}
        return [
            (live[file] if isinstance(file, str) else file, np.unique(np.asarray(deleted, dtype=np.int64)))
            for file, deleted in positions.items()
        ]

    def _table_and_spec(self, spec_id: int | None) -> tuple[Table, PartitionSpec]:
        table = self.table
        return table, table.spec() if spec_id is None else table.specs()[spec_id]

    def _new_path(self, table: Table, spec: PartitionSpec, partition: Record, suffix: str) -> str:
        folder = partition_path(table.metadata, spec, partition)
        name = f"{uuid.uuid4()}{suffix}"
        return table.location_provider().new_data_location(f"{folder}/{name}" if folder else name)

    def _ensure_name_mapping(self) -> None:
        table = self.table
        if table.metadata.name_mapping() is None:
            mapping = create_mapping_from_schema(table.schema()).model_dump_json()
            with table.transaction() as transaction:
                transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _path(file: LiveFile | NewFile) -> str:
    return file.data_file.file_path
