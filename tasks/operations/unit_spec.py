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

from producer.iceberg.delete_file_index import key_columns
from producer.iceberg.partitions import decode_scope
from producer.model.plan import DataFile, EqualityDeleteFile, Plan, PositionDeleteFile, Scope, Unit
from producer.model.staged import Attempt, Staged, StagedVector
from workers.model import convert_unit as engine

GRANULARITY = "write.delete.granularity"


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
                    vector=file.vector,
                )
                for index, file in enumerate(self.data)
            ),
            positions=self.unit.positions,
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
        files = {file.path: file for file in self.unit.data}
        by_target: dict[str, list[PositionDeleteFile]] = defaultdict(list)
        for position_delete in self.unit.positions:
            if position_delete.referenced is not None:
                by_target[position_delete.referenced].append(position_delete)

        def absorbed(vector: StagedVector) -> tuple[str, ...]:
            number = files[vector.target].sequence_number
            return tuple(file.path for file in by_target[vector.target] if file.sequence_number >= number)

        return Staged(
            unit=self.unit.header.number,
            attempt=self.attempt.number,
            scopes=self.unit.scopes,
            deletes=result.deletes,
            vectors=tuple(
                vector if vector.merged else vector.model_copy(update={"absorbed": absorbed(vector)})
                for vector in result.vectors
            ),
            named=self._named(result.named),
            new_positions=result.new_positions,
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
        values = decode_scope(self.metadata, scope)
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
        partition = self.unit.scopes[scope] if scope is not None and self.unit.scopes[scope].label else None
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
