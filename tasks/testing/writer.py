"""Files of a table, put on storage and not yet part of it."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
from tasks.testing.deletes import Deleted, write_position_deletes, write_vectors
from tasks.testing.parquet import project, write_parquet
from tasks.testing.partitioning import split_by_partition
from workers.formats.deletion_vector import DeletionVector
from workers.formats.puffin import read_vector

#: Positions by data file: by its path when it is live, or the file itself when it is of the same commit.
Positions: TypeAlias = Mapping[str | NewFile, Sequence[int]]


def as_names(values: Iterable[Any]) -> list[Any]:
    """Return a list of names or ids; a text is one name, and not a list of its letters."""
    return [values] if isinstance(values, str) else list(values)


@dataclass(frozen=True)
class RowDelta:
    """What one commit adds and removes; the files are on storage already."""

    added: Sequence[NewFile] = field(default_factory=tuple)
    removed: Sequence[LiveFile] = field(default_factory=tuple)

    @property
    def operation(self) -> Operation:
        """What the reference implementation calls such a change."""
        contents = {file.data_file.content for file in self.added}
        if contents and contents <= {DataFileContent.DATA} and not self.removed:
            return Operation.APPEND
        if contents and DataFileContent.DATA not in contents:
            return Operation.DELETE
        return Operation.OVERWRITE


class TableWriter:
    """Writes data files and deletes of one table for commits that are made of several.

    Ids of columns are given as field ids or as dotted names.
    """

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
            rows: columns by name; columns of the schema that are missing are missing in the files too.
            field_ids: without them the table gets a name mapping, where it has none.
            spec_id: a historic spec; the default one where not given.
            omit: columns that only decide the partition and are not written.
            row_group_size: rows of a Parquet row group.
            sequence_number: an explicit data sequence number, as a compaction gives.
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
    ) -> list[NewFile]:
        """Write equality deletes: one file for a given partition or an unpartitioned spec, else one per partition.

        Args:
            keys: all columns are written, those that are no keys too.
            ids: field ids or dotted names, in the order they go into the manifest.
            partition: what the deletes are for; worked out from the keys' columns where it is not given.
            spec_id: a historic spec; under one without fields the deletes are global.
        """
        return self._write_equality_deletes(keys, ids, partition, spec_id, only_keys=False)

    def write_position_deletes(
        self, positions: Positions, *, by_partition: bool = False, branch: str = MAIN_BRANCH
    ) -> list[NewFile]:
        """Write position delete files, one for each data file or one for each partition."""
        table = self.table
        return list(
            write_position_deletes(
                table.io,
                lambda rows: self._new_path(table, table.specs()[rows.spec_id], rows.partition, "-deletes.parquet"),
                table.metadata.properties,
                self._deleted(positions, branch),
                by_partition=by_partition,
            )
        )

    def write_vectors(self, positions: Positions, *, branch: str = MAIN_BRANCH) -> RowDelta:
        """Write deletion vectors into one Puffin file; each takes up the vector that its data file has."""
        table = self.table
        old = {file.referenced_data_file: file for file in self.files(branch) if file.is_vector}
        merged = []
        replaced = []
        for rows in self._deleted(positions, branch):
            vector = DeletionVector.of(rows.positions)
            if (before := old.get(rows.path)) is not None:
                ref = VectorRef(
                    path=before.path,
                    offset=before.content_offset or 0,
                    size=before.content_size or 0,
                    cardinality=before.record_count,
                )
                vector = vector.union(read_vector(table.io, ref, rows.path))
                replaced.append(before)
            merged.append((rows, vector))
        path = self._new_path(table, UNPARTITIONED_PARTITION_SPEC, Record(), "-deletes.puffin")
        return RowDelta(write_vectors(table.io, path, merged), replaced)

    def field_id(self, column: int | str) -> int:
        """Id of a column of the current schema by its dotted name."""
        return column if isinstance(column, int) else self.table.schema().find_field(column).field_id

    def _write_equality_deletes(
        self,
        keys: pa.Table,
        ids: Sequence[int | str],
        partition: Record | None,
        spec_id: int | None,
        *,
        only_keys: bool,
    ) -> list[NewFile]:
        table, spec = self._table_and_spec(spec_id)
        schema = table.schema()
        equality_ids = [self.field_id(column) for column in as_names(ids)]
        _, complete = project(schema, keys)
        if partition is None and is_unpartitioned(spec):
            partition = Record(*(None for _ in spec.fields))
        parts = split_by_partition(complete, spec, schema) if partition is None else [(partition, complete)]
        paths = [schema.find_column_name(field_id) or "" for field_id in equality_ids] if only_keys else None
        files = []
        for where, part in parts:
            columns_schema, columns = project(schema, part, paths)
            path = self._new_path(table, spec, where, "-deletes.parquet")
            written = write_parquet(table.io, path, columns_schema, columns, table.metadata.properties)
            data_file = new_data_file(
                content=DataFileContent.EQUALITY_DELETES, partition=where, equality_ids=equality_ids, **written
            )
            files.append(NewFile(data_file, spec.spec_id))
        return files

    def _deleted(self, positions: Positions, branch: str) -> Iterable[Deleted]:
        live = {file.path: file for file in self.data_files(branch)}
        for file, deleted in positions.items():
            known = live[file] if isinstance(file, str) else file
            record = known.data_file
            yield Deleted(record.file_path, known.spec_id, record.partition, known.partition_key, sorted(set(deleted)))

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
