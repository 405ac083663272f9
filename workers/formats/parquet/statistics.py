"""What the statistics of a Parquet row group say against bounds of keys.

A row group is left out only where no row of it can equal a delete. Floats are never judged: writers disagree on what
their statistics mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workers.arrow.canonical import canonical_array
from workers.arrow.fields import Leaf
from workers.formats.format_model import Bounds
from workers.model.delete_set import KeyColumn


def may_match(
    group: pq.RowGroupMetaData,
    columns: Sequence[KeyColumn],
    leaves: Sequence[Leaf | None],
    bounds: Sequence[Bounds | None],
) -> bool:
    """Return whether a row of the group may lie within the bounds in all key columns, by its statistics.

    A leaf that is a struct stands for a column that the file lacks: the struct's statistics are those of other columns.
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
    """Return the statistics in canonical form; None where they cannot be compared."""
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
