"""Bounds of the deletes' keys, and what a row group's statistics say against them.

A row group is left out only where no row of it can equal a delete. Floats are never judged: writers disagree on what
their statistics mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workers.arrow.canonical import canonical_array, is_ordered
from workers.arrow.fields import Leaf
from workers.model.convert_unit import KeyColumn


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and greatest canonical value of one key column, and whether it holds nulls; text as bytes."""

    #: None where there are only nulls.
    lower: Any = None
    upper: Any = None
    nulls: bool = False

    @classmethod
    def of(cls, column: pa.Array) -> Bounds:
        """The bounds of a canonical array."""
        if pa.types.is_string(column.type):
            column = column.cast(pa.binary())
        found = pc.min_max(column)
        return cls(found["min"].as_py(), found["max"].as_py(), column.null_count > 0)

    def union(self, other: Bounds) -> Bounds:
        """Bounds of both."""
        nulls = self.nulls or other.nulls
        if self.lower is None or other.lower is None:
            some = other if self.lower is None else self
            return Bounds(some.lower, some.upper, nulls)
        return Bounds(min(self.lower, other.lower), max(self.upper, other.upper), nulls)


def bounds_of(columns: Sequence[KeyColumn], arrays: Iterable[pa.Array]) -> tuple[Bounds | None, ...]:
    """Bounds of each key column; None for types that have no order to rely on."""
    return tuple(
        Bounds.of(array) if is_ordered(column.type) else None for column, array in zip(columns, arrays, strict=True)
    )


def may_match(
    group: pq.RowGroupMetaData,
    columns: Sequence[KeyColumn],
    leaves: Sequence[Leaf | None],
    bounds: Sequence[Bounds | None],
) -> bool:
    """Whether a row of the group may equal a delete in all key columns, going by its statistics.

    A leaf that is a struct stands for a column that the file lacks: the struct's statistics are of other columns.
    """
    return all(
        leaf is None or limits is None or pa.types.is_struct(leaf.type) or _may_hold(group, column, leaf, limits)
        for column, leaf, limits in zip(columns, leaves, bounds, strict=True)
    )


def _may_hold(group: pq.RowGroupMetaData, column: KeyColumn, leaf: Leaf, bounds: Bounds) -> bool:
    chunk = group.column(leaf.column)
    found = chunk.statistics
    if found is None:
        return True
    nulls = found.null_count if found.has_null_count else None
    if bounds.nulls and nulls != 0:
        return True
    if bounds.lower is None or nulls == group.num_rows:
        return False
    if not found.has_min_max:
        return True
    limits = _canonical(chunk.physical_type, found, column, leaf)
    return limits is None or bool(limits[0] <= bounds.upper and limits[1] >= bounds.lower)


def _canonical(physical: str, found: pq.Statistics, column: KeyColumn, leaf: Leaf) -> tuple[Any, Any] | None:
    """The statistics in canonical form; None where they cannot be compared."""
    if physical == "BYTE_ARRAY":
        # Writers may cut them, but a cut lower bound is still below all values and an upper one above.
        return found.min_raw, found.max_raw
    if physical not in ("INT32", "INT64") or pa.types.is_unsigned_integer(leaf.type) or pa.types.is_decimal(leaf.type):
        return None
    raw = pa.array([found.min_raw, found.max_raw], pa.int32() if physical == "INT32" else pa.int64())
    try:
        lower, upper = canonical_array(raw.cast(leaf.type), column.type).to_pylist()
    except (ValueError, pa.ArrowException):
        return None
    return lower, upper
