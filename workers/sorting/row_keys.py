"""What rows are arranged by: their partition, then the columns of a sort order or of a z-order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from pyiceberg.schema import Schema, prune_columns
from pyiceberg.types import PrimitiveType

from producer.model.plan import Strategy
from workers.arrow.fields import Accessor
from workers.arrow.partition_router import PartitionRouter
from workers.arrow.schema import is_stored
from workers.model.rewrite_unit import Input, RewriteUnit
from workers.sorting.ranks import Direction
from workers.sorting.sort_keys import OrderKey, sortable


@dataclass(frozen=True, slots=True)
class RowKeys:
    """The keys of a unit's rows, for rows of one Arrow schema."""

    partitioning: PartitionRouter
    order: tuple[OrderKey, ...]
    #: Columns that are interleaved; there are no others in the order then.
    axes: tuple[Accessor, ...]

    @classmethod
    def of(cls, unit: RewriteUnit, rows: pa.Schema) -> Self:
        """The keys of rows that have at least the columns of :func:`key_fields`; ValueError where one is no key."""
        order = unit.order if unit.strategy is Strategy.SORT else ()
        axes = unit.zorder if unit.strategy is Strategy.ZORDER else ()
        return cls(
            PartitionRouter.of(unit, rows),
            tuple(OrderKey.of(column, unit.schema, rows) for column in order),
            tuple(Accessor.of(field_id, unit.schema, rows) for field_id in axes),
        )

    @property
    def directions(self) -> list[Direction]:
        """How each column of the order is sorted."""
        return [Direction(key.key.descending, key.key.nulls_first) for key in self.order]

    def parts(self, file: Input, batch: pa.RecordBatch) -> pa.Array:
        """The partition of each row, as text."""
        return self.partitioning.texts(file, batch)

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The columns of the order, or those that are to be interleaved, sortable."""
        return [
            *(key.of_rows(batch) for key in self.order),
            *(sortable(axis.column(batch)) for axis in self.axes),
        ]


def key_fields(unit: RewriteUnit) -> Schema:
    """The columns that the keys of a unit's rows are made from; never none, for without columns no rows are read."""
    ids: set[int] = set()
    if unit.strategy is Strategy.SORT:
        ids |= {column.field_id for column in unit.order}
    if unit.strategy is Strategy.ZORDER:
        ids |= set(unit.zorder)
    if None in unit.scopes:
        ids |= {field.source_id for field in unit.spec.fields}
    known = {field_id for field_id in ids & unit.schema.field_ids if is_stored(unit.schema.find_type(field_id))}
    if not known:
        stored = [field for field in unit.schema.fields if is_stored(field.field_type)]
        plain = [field for field in stored if isinstance(field.field_type, PrimitiveType)]
        return Schema(*(plain[:1] or stored))
    return prune_columns(unit.schema, known, select_full_types=False)
