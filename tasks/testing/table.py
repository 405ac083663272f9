"""A table that a stream fills, and the catalog that it is in: appends, upserts and deletes, each its own snapshot."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from producer.iceberg.pyiceberg_metadata import enable_version_3
from producer.iceberg.snapshot_producer import SnapshotProducer
from tasks.testing.writer import Positions, RowDelta, TableWriter, as_names

# Tables are created in version 3 before any snapshot is built.
enable_version_3()


def local_catalog(folder: str | Path, name: str = "default") -> SqlCatalog:
    """Return a catalog with its warehouse in a folder, which is created if it is missing."""
    folder = Path(folder).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return SqlCatalog(name, uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def upgrade(catalog: Catalog, identifier: str, format_version: int = 3) -> Table:
    """Raise a table's format version as other engines do: its rows get row ids with the next snapshot only.

    For catalogs that keep nothing of a table but where its metadata is: the table is registered anew, and there is a
    moment without it.
    """
    table = catalog.load_table(identifier)
    document: dict[str, Any] = json.loads(table.metadata.model_dump_json())
    document["format-version"] = format_version
    document["metadata-log"].append(
        {"metadata-file": table.metadata_location, "timestamp-ms": table.metadata.last_updated_ms}
    )
    if format_version >= 3:
        document.setdefault("next-row-id", 0)
    version = int(table.metadata_location.rsplit("/", 1)[-1].split("-", 1)[0])
    location = table.location_provider().new_table_metadata_file_location(version + 1)
    ToOutputFile.table_metadata(TableMetadataUtil.parse_obj(document), table.io.new_output(location))
    catalog.drop_table(identifier)
    return catalog.register_table(identifier, location)


class StreamTable(TableWriter):
    """One table of a catalog, written to like a stream does.

    The ``write_`` methods put files on storage and return them for a :class:`RowDelta`; the others commit at once,
    each as one snapshot whose id they return. Ids of columns are given as field ids or as dotted names.
    """

    @classmethod
    def create(
        cls,
        catalog: Catalog,
        identifier: str,
        schema: Schema | pa.Schema,
        *,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        format_version: int = 2,
        properties: Mapping[str, str] | None = None,
        location: str | None = None,
    ) -> StreamTable:
        """Create an empty table, and its namespace if it is missing. Field ids are assigned anew, from 1.

        Raises:
            ValueError: A partition spec with an Arrow schema, which has no field ids that the spec could name.
        """
        if isinstance(schema, pa.Schema) and spec.fields:
            raise ValueError("A partition spec names field ids: give the schema as a pyiceberg.schema.Schema.")
        catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
        catalog.create_table(
            identifier,
            schema,
            partition_spec=spec,
            location=location,
            properties={**(properties or {}), TableProperties.FORMAT_VERSION: str(format_version)},
        )
        return cls(catalog, identifier)

    def append(
        self,
        rows: pa.Table,
        *,
        field_ids: bool = True,
        spec_id: int | None = None,
        omit: Collection[str] = (),
        row_group_size: int | None = None,
        branch: str = MAIN_BRANCH,
    ) -> int:
        """Add rows; see :meth:`write_data`."""
        files = self.write_data(rows, field_ids=field_ids, spec_id=spec_id, omit=omit, row_group_size=row_group_size)
        return self.commit(RowDelta(files), branch=branch)

    def upsert(
        self, rows: pa.Table, ids: Sequence[int | str], *, spec_id: int | None = None, branch: str = MAIN_BRANCH
    ) -> int:
        """Add rows and delete every older row of the same key in the same partition, as Flink's upserts do.

        Both have the same sequence number, so the new rows stay. A key comes once in the rows.
        """
        data = self.write_data(rows, spec_id=spec_id)
        deletes = self.write_equality_deletes(rows, ids, spec_id=spec_id, only_keys=True)
        return self.commit(RowDelta([*data, *deletes]), branch=branch)

    def delete_where_equal(
        self,
        keys: pa.Table,
        ids: Sequence[int | str],
        *,
        partition: Record | None = None,
        spec_id: int | None = None,
        branch: str = MAIN_BRANCH,
    ) -> int:
        """Delete rows by key; see :meth:`write_equality_deletes`."""
        deletes = self.write_equality_deletes(keys, ids, partition=partition, spec_id=spec_id)
        return self.commit(RowDelta(deletes), branch=branch)

    def delete_positions(self, positions: Positions, *, by_partition: bool = False, branch: str = MAIN_BRANCH) -> int:
        """Delete rows by position (format version 2); see :meth:`write_position_deletes`."""
        deletes = self.write_position_deletes(positions, by_partition=by_partition, branch=branch)
        return self.commit(RowDelta(deletes), branch=branch)

    def delete_vector(self, positions: Positions, *, branch: str = MAIN_BRANCH) -> int:
        """Delete rows by position (format version 3); the vectors replace those that the files have."""
        return self.commit(self.write_vectors(positions, branch=branch), branch=branch)

    def remove_files(self, paths: Collection[str], *, branch: str = MAIN_BRANCH) -> int:
        """Remove files of any kind from the table; they stay on storage."""
        removed = set(as_names(paths))
        return self.commit(RowDelta(removed=[f for f in self.files(branch) if f.path in removed]), branch=branch)

    def upgrade(self, format_version: int = 3) -> None:
        """Raise the format version; see :func:`tasks.testing.upgrade`."""
        upgrade(self.catalog, self.identifier, format_version)

    @retry(retry=retry_if_exception_type(CommitFailedException), stop=stop_after_attempt(20), reraise=True)
    def commit(
        self,
        delta: RowDelta,
        *,
        branch: str = MAIN_BRANCH,
        operation: Operation | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Commit any mix of files as one snapshot; a branch that is missing starts at main's head."""
        kind = operation or delta.operation
        update = SnapshotProducer(self.table, branch, operation=kind, properties=properties, create_branch=True)
        update.add(delta.added)
        update.remove(delta.removed)
        prepared = update.prepare()
        try:
            return prepared.commit().snapshot_id
        except CommitFailedException:
            prepared.discard()
            raise
