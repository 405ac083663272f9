"""Between plan and engine: a unit in the engine's terms, and the engine's result as a staged record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType, StructType

from producer.iceberg.delete_index import key_columns
from producer.iceberg.partitions import decode_partition, partition_type
from producer.model.plan import DataFile, EqualityDeleteFile, Plan, Scope, Unit
from producer.model.staged import Attempt, Staged, StagedDeleteFile, StagedVector
from workers.model import convert_unit as engine

GRANULARITY = "write.delete.granularity"


@dataclass(frozen=True)
class PartitionPath:
    """A partition as location providers want it: they ask for nothing but its path."""

    path: str

    def to_path(self) -> str:
        """Hive-style path, such as ``day=2024-05-01``."""
        return self.path


@dataclass(frozen=True)
class Conversion:
    """One attempt at a unit, in the engine's terms and back."""

    plan: Plan
    unit: Unit
    attempt: Attempt
    metadata: TableMetadata
    table: Table

    @property
    def data(self) -> list[DataFile]:
        """The unit's data files in the order of their target indexes: by partition, then path."""
        return sorted(self.unit.data, key=lambda file: (file.scope, file.path))

    def engine_unit(self) -> engine.ConversionUnit:
        """What the engine is told to do."""
        name = f"{self.plan.request.token}-{self.plan.round}-{self.unit.header.number}-{self.attempt.token}"
        return engine.ConversionUnit(
            name=name,
            format_version=self.plan.format_version,
            matches=tuple(self._matches()),
            targets=tuple(
                engine.Target(
                    index=index,
                    path=file.path,
                    sequence_number=file.sequence_number,
                    scope=file.scope,
                    record_count=file.records,
                    destination=self._location(file.scope, f"{name}-{index:05d}-deletes.parquet"),
                    vector=engine.VectorRef(**file.vector.model_dump()) if file.vector else None,
                )
                for index, file in enumerate(self.data)
            ),
            positions=tuple(engine.PositionFile(**file.model_dump()) for file in self.unit.positions),
            granularity="partition"
            if self.metadata.properties.get(GRANULARITY, "file").lower() == "partition"
            else "file",
            scope_destinations={
                scope: self._location(scope, f"{name}-p{scope:05d}-deletes.parquet")
                for scope in range(len(self.unit.scopes))
            },
            puffin_destination=self._location(None, f"{name}-{{task}}-deletes.puffin"),
            name_mapping=self.metadata.name_mapping(),
            properties=dict(self.metadata.properties),
        )

    def staged(self, result: engine.ConversionResult) -> Staged:
        """The record of what the engine wrote."""
        data = self.data
        deletes = tuple(
            StagedDeleteFile(
                path=delete.path,
                size=delete.size,
                records=delete.record_count,
                column_sizes=delete.column_sizes,
                lower=(delete.lower_path, delete.lower_pos),
                upper=(delete.upper_path, delete.upper_pos),
                split_offsets=delete.split_offsets,
                scope=data[delete.targets[0]].scope,
                targets=tuple(data[target].path for target in delete.targets),
            )
            for delete in result.deletes
        )
        return Staged(
            unit=self.unit.header.number,
            attempt=self.attempt.number,
            scopes=self.unit.scopes,
            deletes=deletes,
            vectors=tuple(self._staged_vector(vector, data[vector.target]) for vector in result.vectors),
            named=self._named(result.named),
            new_positions=result.new_positions,
        )

    def _staged_vector(self, vector: engine.StagedVector, target: DataFile) -> StagedVector:
        absorbed = (
            file.path
            for file in self.unit.positions
            if file.referenced == target.path and file.sequence_number >= target.sequence_number
        )
        return StagedVector(
            path=vector.path,
            size=vector.size,
            offset=vector.offset,
            content_size=vector.content_size,
            cardinality=vector.cardinality,
            new_positions=vector.new_positions,
            scope=target.scope,
            target=target.path,
            merged=target.vector,
            absorbed=() if target.vector else tuple(absorbed),
        )

    def _named(self, named: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Only format version 3 lets position delete files go, and only those of whole partitions need the list."""
        if self.plan.format_version < 3:
            return {}
        shared = {file.path for file in self.unit.positions if file.referenced is None}
        return {path: tuple(targets) for path, targets in named.items() if path in shared}

    def _matches(self) -> Iterator[engine.Match]:
        groups: dict[tuple[tuple[int, ...], bool], list[EqualityDeleteFile]] = defaultdict(list)
        for delete in self.unit.deletes:
            groups[delete.equality_ids, delete.scope is None].append(delete)
        for (ids, is_global), deletes in groups.items():
            newest: dict[int | None, int] = {}
            for delete in deletes:
                newest[delete.scope] = max(delete.sequence_number, newest.get(delete.scope, 0))
            reached = [
                (index, file)
                for index, file in enumerate(self.data)
                if file.sequence_number < newest.get(None if is_global else file.scope, 0)
            ]
            yield engine.Match(
                columns=tuple(self._column(field_id, type_) for field_id, type_ in key_columns(self.metadata, ids)),
                is_global=is_global,
                deletes=tuple(self._key_file(index, delete) for index, delete in enumerate(deletes)),
                data=tuple(self._key_file(index, file) for index, file in reached),
            )

    def _key_file(self, index: int, file: DataFile | EqualityDeleteFile) -> engine.KeyFile:
        return engine.KeyFile(
            index=index,
            path=file.path,
            sequence_number=file.sequence_number,
            scope=-1 if file.scope is None else file.scope,
            record_count=file.records,
            size=file.size,
            constants={} if file.scope is None else self.constants(self.unit.scopes[file.scope]),
        )

    def constants(self, scope: Scope) -> dict[int, Any]:
        """Values of identity partition columns, for files that leave these out (spec, Column Projection)."""
        spec = self._spec(scope)
        values = decode_partition(partition_type(self.metadata, spec), scope.values)
        return {
            field.source_id: values[position]
            for position, field in enumerate(spec.fields)
            if isinstance(field.transform, IdentityTransform)
        }

    def _column(self, field_id: int, type_: PrimitiveType) -> engine.KeyColumn:
        for schema in (self.metadata.schema(), *self.metadata.schemas):
            if field_id in schema.field_ids:
                default = schema.find_field(field_id).initial_default
                return engine.KeyColumn(field_id, type_, default, _parent(schema.fields, field_id))
        return engine.KeyColumn(field_id, type_)

    def _spec(self, scope: Scope) -> PartitionSpec:
        return self.metadata.specs()[scope.spec_id]

    def _location(self, scope: int | None, name: str) -> str:
        label = self.unit.scopes[scope].label if scope is not None else ""
        partition = PartitionPath(label) if label else None
        return self.table.location_provider().new_data_location(name, partition)  # type: ignore[arg-type]


def _parent(fields: Iterable[NestedField], field_id: int, around: int | None = None) -> int | None:
    """The id of the struct that a field lies in; None at the top level."""
    for field in fields:
        if field.field_id == field_id:
            return around
        if isinstance(field.field_type, StructType):
            found = _parent(field.field_type.fields, field_id, field.field_id)
            if found is not None:
                return found
    return None
