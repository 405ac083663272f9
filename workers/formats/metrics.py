"""Metrics of a data file (spec: Data File Fields), taken from the rows that are written and not from the footer.

Each column has a mode that says which are recorded (``write.metadata.metrics.*``).

Parquet's statistics have no counts of NaN, none at all for long values, and none that can be relied on where a NaN is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from producer.model.staged import StagedDataFile
from workers.arrow.fields import Leaf
from workers.arrow.schema import column_at

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."
_MAX_COLUMNS: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MAX_COLUMNS_DEFAULT: Final = 100
#: From here on ids are reserved (spec, Reserved Field IDs): such columns are none of the table's.
_RESERVED: Final = 2147483447
_SURROGATES: Final = range(0xD800, 0xE000)
_LAST_CHARACTER: Final = 0x10FFFF


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """Which metrics of one column are recorded. Column sizes count among the counts."""

    counts: bool = True
    bounds: bool = True
    #: Characters of text, or bytes of binary values, that bounds have; None for all.
    length: int | None = None


NONE: Final = MetricsMode(counts=False, bounds=False)
COUNTS: Final = MetricsMode(bounds=False)
FULL: Final = MetricsMode()
#: The default.
TRUNCATE: Final = MetricsMode(length=16)

_NAMED: Final = {"none": NONE, "counts": COUNTS, "full": FULL}


def modes_of(schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int] = ()) -> dict[int, MetricsMode]:
    """Return the mode of every leaf column by field id, as Iceberg's ``MetricsConfig`` works it out.

    A mode that does not exist counts as not given. Without a default of the table's, only so many columns as
    ``write.metadata.metrics.max-inferred-column-defaults`` says have one; those of a struct come before those of the
    structs, lists and maps in it.

    Args:
        schema: What is written; its reserved columns, those of row lineage, take the table's default.
        properties: Table properties.
        sorted_ids: Columns that the table is sorted by, which have bounds whatever the default.

    Raises:
        ValueError: the property that limits the number of columns is not a number.
    """
    leaves = [field_id for field_id in _leaves(schema.as_struct()) if field_id < _RESERVED]
    modes: dict[int, MetricsMode] = {}
    default = TRUNCATE
    if _DEFAULT in properties:
        default = _mode(properties[_DEFAULT]) or TRUNCATE
    elif len(leaves) > (limit := _max_columns(properties)):
        default, modes = NONE, dict.fromkeys(islice(leaves, limit), TRUNCATE)
    modes.update(dict.fromkeys(sorted_ids, default if default.bounds else TRUNCATE))
    for field_id in _leaves(schema.as_struct()):
        named = _mode(properties.get(_COLUMN + str(schema.find_column_name(field_id)), ""))
        modes[field_id] = named or modes.get(field_id, default)
    return modes


class Metrics:
    """Collects the metrics of one file that is being written; takes the same tables as the file."""

    def __init__(self, schema: Schema, columns: Mapping[int, Leaf], modes: Mapping[int, MetricsMode]) -> None:
        self._columns = columns
        self._modes = modes
        self._totals: dict[int, _ColumnMetrics] = {}
        #: Rows so far.
        self.rows = 0
        for field_id, column in columns.items():
            type_ = schema.find_type(field_id)
            if column.path and modes[field_id].counts and isinstance(type_, PrimitiveType):
                self._totals[field_id] = _ColumnMetrics(type_, modes[field_id])

    def add(self, table: pa.Table) -> None:
        """Take rows; memory and time do not depend on how many were taken before."""
        self.rows += table.num_rows
        for field_id, totals in self._totals.items():
            totals.add(column_at(table, self._columns[field_id].path))

    def describe(
        self, path: str, size: int, column_sizes: Sequence[int], split_offsets: tuple[int, ...]
    ) -> StagedDataFile:
        """Describe the finished file. Columns inside lists and maps have sizes only, as with Iceberg's own writers."""
        bounds = {field_id: totals.bounds() for field_id, totals in self._totals.items()}
        return StagedDataFile(
            path=path,
            size=size,
            records=self.rows,
            scope=0,  # a number once all files of the unit are known
            column_sizes={
                field_id: bytes_
                for field_id, bytes_ in zip(self._columns, column_sizes, strict=True)
                if self._modes[field_id].counts
            },
            value_counts={field_id: totals.values for field_id, totals in self._totals.items()},
            null_value_counts={field_id: totals.nulls for field_id, totals in self._totals.items()},
            nan_value_counts={
                field_id: totals.nans
                for field_id, totals in self._totals.items()
                if isinstance(totals.type, FloatType | DoubleType)
            },
            lower_bounds={field_id: lower.hex() for field_id, (lower, _) in bounds.items() if lower is not None},
            upper_bounds={field_id: upper.hex() for field_id, (_, upper) in bounds.items() if upper is not None},
            split_offsets=split_offsets,
        )


class _ColumnMetrics:
    """The metrics of one column so far."""

    def __init__(self, type_: PrimitiveType, mode: MetricsMode) -> None:
        self.type = type_
        self.values = 0
        self.nulls = 0
        self.nans = 0
        self._mode = mode
        self._lower: Any = None
        self._upper: Any = None
        #: Of UUIDs: the signs of their halves, taken as signed numbers.
        self._signs: set[int] = set()

    def add(self, column: pa.ChunkedArray) -> None:
        self.values += len(column)
        self.nulls += column.null_count
        if isinstance(self.type, FloatType | DoubleType):
            self.nans += pc.sum(pc.is_nan(column), min_count=0).as_py()
        if not self._mode.bounds:
            return
        found = pc.min_max(column)
        lower, upper = _value(found["min"]), _value(found["max"])
        if lower is None or lower != lower:  # only nulls, or only NaN
            return
        self._lower = lower if self._lower is None else min(lower, self._lower)
        self._upper = upper if self._upper is None else max(upper, self._upper)
        if isinstance(self.type, UUIDType):
            self._signs.update(*(_signs(chunk.drop_null()) for chunk in column.chunks))

    def bounds(self) -> tuple[bytes | None, bytes | None]:
        """Return single values that no value lies outside of; None where there are none, or none can be given."""
        lower, upper, length = self._lower, self._upper, self._mode.length
        if lower is None:
            return None, None
        if isinstance(self.type, FloatType | DoubleType):
            # Readers differ in whether the zeros are equal: -0.0 and 0.0 are right for all.
            lower, upper = (-0.0 if lower == 0 else lower), (0.0 if upper == 0 else upper)
            return to_bytes(self.type, lower), to_bytes(self.type, upper)
        if isinstance(self.type, StringType):
            return _text_bounds(lower, upper, length)
        if isinstance(self.type, BinaryType):
            return lower[:length], above_bytes(upper, length)
        if isinstance(self.type, UUIDType) and len(self._signs) > 1:
            # By the spec UUIDs are ordered as bytes, but Iceberg's Java implementation orders them as pairs of signed
            # numbers and would search the wrong files for values: bounds only where both orders agree.
            return None, None
        return to_bytes(self.type, lower), to_bytes(self.type, upper)


def above_text(text: str, length: int | None) -> str | None:
    """Return the least text of at most ``length`` characters that is not below a text; None if there is none."""
    if length is None or len(text) <= length:
        return text
    for end in range(length, 0, -1):
        character = ord(text[end - 1]) + 1
        if character in _SURROGATES:
            character = _SURROGATES.stop
        if character <= _LAST_CHARACTER:
            return text[: end - 1] + chr(character)
    return None


def above_bytes(value: bytes, length: int | None) -> bytes | None:
    """Return the least value of at most ``length`` bytes that is not below a value; None if there is none."""
    if length is None or len(value) <= length:
        return value
    prefix = value[:length].rstrip(b"\xff")
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None


def _text_bounds(lower: bytes, upper: bytes, length: int | None) -> tuple[bytes | None, bytes | None]:
    try:
        low, high = lower.decode(), above_text(upper.decode(), length)
    except UnicodeDecodeError:
        return None, None  # such text has no order that readers agree on
    return low[:length].encode(), None if high is None else high.encode()


def _value(scalar: pa.Scalar) -> Any:
    """Return a value in Iceberg's internal form, text as bytes; these are ordered as Arrow orders them."""
    if not scalar.is_valid:
        return None
    type_ = scalar.type
    if pa.types.is_temporal(type_):
        return scalar.value
    if pa.types.is_string(type_) or pa.types.is_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return scalar.as_buffer().to_pybytes()
    return scalar.as_py()


def _signs(uuids: pa.Array) -> set[int]:
    """Return the signs of both halves, wherever one of these UUIDs has them; there are no nulls."""
    octets = np.frombuffer(uuids.buffers()[1], np.uint8).reshape(-1, 16)[uuids.offset :][: len(uuids)]
    return set(np.unique((octets[:, 0] >> 7) * 2 + (octets[:, 8] >> 7)).tolist())


def _mode(text: str) -> MetricsMode | None:
    cut = re.fullmatch(r"truncate\((\d+)\)", text.lower(), re.ASCII)
    if cut and int(cut[1]) > 0:
        return MetricsMode(length=int(cut[1]))
    return _NAMED.get(text.lower())


def _max_columns(properties: Mapping[str, str]) -> int:
    try:
        limit = int(properties.get(_MAX_COLUMNS, _MAX_COLUMNS_DEFAULT))
    except ValueError as error:
        raise ValueError(f"{_MAX_COLUMNS} is {properties[_MAX_COLUMNS]}, not a whole number") from error
    return limit if limit >= 0 else _MAX_COLUMNS_DEFAULT


def _leaves(type_: IcebergType) -> Iterator[int]:
    """Yield the field ids of columns without children: those right below a type, then those further down."""
    fields = _fields(type_)
    yield from (leaf.field_id for leaf in fields if isinstance(leaf.field_type, PrimitiveType))
    for below in fields:
        yield from _leaves(below.field_type)


def _fields(type_: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(type_, StructType):
        return type_.fields
    if isinstance(type_, ListType):
        return (type_.element_field,)
    if isinstance(type_, MapType):
        return (type_.key_field, type_.value_field)
    return ()
