"""Column bounds of data files and delete files: whether they rule out that a delete matches a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from producer.iceberg.manifest_entry import TRUNCATED_LENGTH, LiveFile

#: Types whose bounds every writer orders alike. Floats are not among them (NaN, -0.0), nor are uuids (writers disagree
#: on the sign of their halves).
_ORDERED_TYPES: Final = (
    IntegerType,
    LongType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
    DecimalType,
    StringType,
    BinaryType,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """The range of a column's values in one or more files; a bound of None is unknown."""

    lower: Any
    upper: Any
    may_be_null: bool

    @classmethod
    def of(cls, file: LiveFile, field_id: int, type_: PrimitiveType) -> Interval:
        """Return the interval of a column in one file; its bounds are unknown if the file has no metrics for it."""
        nulls = file.null_value_counts.get(field_id)
        lower = file.lower_bounds.get(field_id)
        upper = file.upper_bounds.get(field_id)
        if not isinstance(type_, _ORDERED_TYPES) or lower is None or upper is None:
            return cls(None, None, nulls != 0)
        return cls(_decode_bound(type_, lower), _decode_upper_bound(type_, upper), nulls != 0)

    def union(self, other: Interval) -> Interval:
        """Return the smallest interval that contains both."""
        lowers, uppers = (self.lower, other.lower), (self.upper, other.upper)
        return Interval(
            None if None in lowers else min(lowers),
            None if None in uppers else max(uppers),
            self.may_be_null or other.may_be_null,
        )

    def may_overlap(self, other: Interval) -> bool:
        """Whether a value, or null, may lie in both."""
        if self.may_be_null and other.may_be_null:
            return True
        return not (_is_above(self.lower, other.upper) or _is_above(other.lower, self.upper))


def file_intervals(file: LiveFile, columns: Sequence[tuple[int, PrimitiveType]]) -> tuple[Interval, ...]:
    """Return the interval of each key column in a file."""
    return tuple(Interval.of(file, field_id, type_) for field_id, type_ in columns)


def union_intervals(one: Sequence[Interval], other: Sequence[Interval]) -> tuple[Interval, ...]:
    """Return for each key column the smallest interval that contains both."""
    return tuple(a.union(b) for a, b in zip(one, other, strict=True))


def may_match(data: Sequence[Interval], deletes: Sequence[Interval]) -> bool:
    """Whether a row may equal a delete in all key columns."""
    return all(a.may_overlap(b) for a, b in zip(data, deletes, strict=True))


def _is_above(lower: Any | None, upper: Any | None) -> bool:
    return lower is not None and upper is not None and bool(lower > upper)


def _decode_bound(type_: PrimitiveType, bound: bytes) -> Any:
    if isinstance(type_, StringType):
        return bound  # UTF-8 has the same order as its code points
    if isinstance(type_, (LongType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)):
        if len(bound) == 4 and not isinstance(type_, LongType):
            return None  # days: the column was promoted from a date
        return int.from_bytes(bound, "little", signed=True)
    return from_bytes(type_, bound)


def _decode_upper_bound(type_: PrimitiveType, bound: bytes) -> Any:
    """Return the upper bound, raised if it may be truncated; None if it cannot be raised."""
    if not isinstance(type_, (StringType, BinaryType)) or len(bound) < TRUNCATED_LENGTH:
        return _decode_bound(type_, bound)
    prefix = bound.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
