"""Whether the key bounds of a data file and of its deletes rule out that any row matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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

#: Types whose single-value form sorts as the values do for every writer. Floats are left out (NaN, -0.0), uuids too
#: (writers disagree on the sign of their halves).
ORDERED = (
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
#: Some writers cut bounds to so many characters without raising the upper one: a value may lie above by what was cut.
TRUNCATED = 16


class HasMetrics(Protocol):
    """A file of a manifest with its column metrics (spec, Manifests)."""

    @property
    def lower_bounds(self) -> Mapping[int, bytes]: ...
    @property
    def upper_bounds(self) -> Mapping[int, bytes]: ...
    @property
    def null_value_counts(self) -> Mapping[int, int]: ...


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of a column's values in one or more files; ``None`` bounds are unknown."""

    lower: Any
    upper: Any
    may_be_null: bool

    @classmethod
    def of(cls, file: HasMetrics, field_id: int, type_: PrimitiveType) -> Interval:
        """The interval of a column in one file; a file without metrics for it is unknown."""
        nulls = file.null_value_counts.get(field_id)
        lower = file.lower_bounds.get(field_id)
        upper = file.upper_bounds.get(field_id)
        if not isinstance(type_, ORDERED) or lower is None or upper is None:
            return cls(None, None, nulls != 0)
        return cls(_value(type_, lower), _open_ended(type_, upper), nulls != 0)

    def union(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        lowers, uppers = (self.lower, other.lower), (self.upper, other.upper)
        return Interval(
            None if None in lowers else min(lowers),
            None if None in uppers else max(uppers),
            self.may_be_null or other.may_be_null,
        )

    def may_meet(self, other: Interval) -> bool:
        """Whether some value, or null, may lie in both."""
        if self.may_be_null and other.may_be_null:
            return True
        return not (_above(self.lower, other.upper) or _above(other.lower, self.upper))


def intervals(files: Iterable[HasMetrics], columns: Sequence[tuple[int, PrimitiveType]]) -> tuple[Interval, ...]:
    """For each key column the interval that holds all of its values in ``files`` (one at least)."""
    found: tuple[Interval, ...] | None = None
    for file in files:
        own = tuple(Interval.of(file, field_id, type_) for field_id, type_ in columns)
        found = own if found is None else tuple(a.union(b) for a, b in zip(found, own, strict=True))
    assert found is not None
    return found


def may_match(data: Sequence[Interval], deletes: Sequence[Interval]) -> bool:
    """Whether some row may equal some delete in all key columns."""
    return all(a.may_meet(b) for a, b in zip(data, deletes, strict=True))


def _above(lower: Any | None, upper: Any | None) -> bool:
    return lower is not None and upper is not None and bool(lower > upper)


def _value(type_: PrimitiveType, bound: bytes) -> Any:
    if isinstance(type_, StringType):
        return bound  # UTF-8 sorts by bytes as by code points
    if isinstance(type_, (LongType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)):
        if len(bound) == 4 and not isinstance(type_, LongType):
            return None  # days from before the column was promoted from a date
        return int.from_bytes(bound, "little", signed=True)
    return from_bytes(type_, bound)


def _open_ended(type_: PrimitiveType, bound: bytes) -> Any:
    """The upper bound, raised where it may have been cut off; None when it can't be raised."""
    if not isinstance(type_, (StringType, BinaryType)) or len(bound) < TRUNCATED:
        return _value(type_, bound)
    prefix = bound.rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
