"""The files of a planned unit as the engine's delete set."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField, PrimitiveType, StructType

from producer.iceberg.delete_file_index import key_columns
from producer.iceberg.partitions import decode_scope
from producer.model.plan import DataFile, EqualityDeleteFile, Plan, Scope, Unit
from producer.model.staged import Attempt
from workers.model.delete_set import ContentFile, DeleteSet, EqualityDeletes, KeyColumn


def engine_name(plan: Plan, unit: Unit, attempt: Attempt) -> str:
    """Return the name of an attempt at a unit, which the names of all its files begin with."""
    return f"{plan.request.token}-{plan.round}-{unit.header.number}-{attempt.token}"


def delete_set(metadata: TableMetadata, unit: Unit) -> DeleteSet:
    """Return the data files of a unit and the deletes that reach them."""
    constants = [_constants(metadata, scope) for scope in unit.scopes]

    def content_file(index: int, file: DataFile | EqualityDeleteFile) -> ContentFile:
        return ContentFile(
            index=index,
            path=file.path,
            sequence_number=file.sequence_number,
            scope=-1 if file.scope is None else file.scope,
            record_count=file.records,
            size=file.size,
            vector=file.vector if isinstance(file, DataFile) else None,
            first_row_id=file.first_row_id if isinstance(file, DataFile) else None,
            constants={} if file.scope is None else constants[file.scope],
        )

    groups: dict[tuple[tuple[int, ...], bool], list[EqualityDeleteFile]] = defaultdict(list)
    for delete in unit.deletes:
        groups[delete.equality_ids, delete.scope is None].append(delete)
    data = sorted(unit.data, key=lambda file: (file.scope, file.path))
    return DeleteSet(
        data_files=tuple(content_file(index, file) for index, file in enumerate(data)),
        equality=tuple(
            EqualityDeletes(
                columns=tuple(_key_column(metadata, field_id, type_) for field_id, type_ in key_columns(metadata, ids)),
                is_global=is_global,
                files=tuple(content_file(index, delete) for index, delete in enumerate(deletes)),
            )
            for (ids, is_global), deletes in groups.items()
        ),
        positions=unit.positions,
        name_mapping=metadata.name_mapping(),
    )


def _constants(metadata: TableMetadata, scope: Scope) -> dict[int, Any]:
    """Return the values of identity partition columns, for files that lack these (spec, Column Projection)."""
    values = decode_scope(metadata, scope)
    return {
        field.source_id: values[position]
        for position, field in enumerate(metadata.specs()[scope.spec_id].fields)
        if isinstance(field.transform, IdentityTransform)
    }


def _key_column(metadata: TableMetadata, field_id: int, type_: PrimitiveType) -> KeyColumn:
    for schema in (metadata.schema(), *metadata.schemas):
        if field_id in schema.field_ids:
            default = schema.find_field(field_id).initial_default
            return KeyColumn(field_id, type_, default, _parent(schema.fields, field_id))
    return KeyColumn(field_id, type_)


def _parent(fields: Iterable[NestedField], field_id: int, around: int | None = None) -> int | None:
    """Return the id of the struct that a field lies in, or None at the top level."""
    for field in fields:
        if field.field_id == field_id:
            return around
        if isinstance(field.field_type, StructType):
            found = _parent(field.field_type.fields, field_id, field.field_id)
            if found is not None:
                return found
    return None
