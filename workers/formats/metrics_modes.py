"""Which metrics of a data file are kept, column by column (``write.metadata.metrics.*``)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

_DEFAULT: Final = "write.metadata.metrics.default"
_COLUMN: Final = "write.metadata.metrics.column."
_MOST: Final = "write.metadata.metrics.max-inferred-column-defaults"
_MOST_DEFAULT: Final = 100
#: From here on ids are reserved (spec, Reserved Field IDs): such columns are none of the table's.
_RESERVED: Final = 2147483447


@dataclass(frozen=True, slots=True)
class Mode:
    """What is kept of one column. Column sizes count among the counts."""

    counts: bool = True
    bounds: bool = True
    #: Characters of text, or bytes of binary values, that bounds keep; None for all.
    length: int | None = None


NONE: Final = Mode(counts=False, bounds=False)
COUNTS: Final = Mode(bounds=False)
FULL: Final = Mode()
#: What holds unless something else is said.
TRUNCATE: Final = Mode(length=16)

_NAMED: Final = {"none": NONE, "counts": COUNTS, "full": FULL}


def modes_of(schema: Schema, properties: Mapping[str, str], sorted_ids: Collection[int] = ()) -> dict[int, Mode]:
    """The mode of every column without children, by field id, as Iceberg's ``MetricsConfig`` works it out.

    A mode that does not exist counts as not given. Without a default of the table's, only so many columns as
    ``write.metadata.metrics.max-inferred-column-defaults`` says have one; those of a struct come before those of the
    structs, lists and maps in it.

    :param schema: what is written; its reserved columns, those of row lineage, take the table's default.
    :param sorted_ids: columns that the table is sorted by: these keep bounds whatever the default.
    :raises ValueError: when the property that counts columns is no number.
    """
    leaves = [field_id for field_id in _leaves(schema.as_struct()) if field_id < _RESERVED]
    modes: dict[int, Mode] = {}
    default = TRUNCATE
    if _DEFAULT in properties:
        default = _mode(properties[_DEFAULT]) or TRUNCATE
    elif len(leaves) > (most := _most(properties)):
        default, modes = NONE, dict.fromkeys(islice(leaves, most), TRUNCATE)
    modes.update(dict.fromkeys(sorted_ids, default if default.bounds else TRUNCATE))
    for field_id in _leaves(schema.as_struct()):
        named = _mode(properties.get(_COLUMN + str(schema.find_column_name(field_id)), ""))
        modes[field_id] = named or modes.get(field_id, default)
    return modes


def _mode(text: str) -> Mode | None:
    """The mode of that name; None where there is none."""
    cut = re.fullmatch(r"truncate\((\d+)\)", text.lower(), re.ASCII)
    if cut and int(cut[1]) > 0:
        return Mode(length=int(cut[1]))
    return _NAMED.get(text.lower())


def _most(properties: Mapping[str, str]) -> int:
    try:
        most = int(properties.get(_MOST, _MOST_DEFAULT))
    except ValueError as error:
        raise ValueError(f"{_MOST} is {properties[_MOST]}, not a whole number") from error
    return most if most >= 0 else _MOST_DEFAULT


def _leaves(type_: IcebergType) -> Iterator[int]:
    """Field ids of columns without children: those right below a type, then those further down."""
    fields = _fields(type_)
    yield from (field.field_id for field in fields if isinstance(field.field_type, PrimitiveType))
    for field in fields:
        yield from _leaves(field.field_type)


def _fields(type_: IcebergType) -> tuple[NestedField, ...]:
    if isinstance(type_, StructType):
        return type_.fields
    if isinstance(type_, ListType):
        return (type_.element_field,)
    if isinstance(type_, MapType):
        return (type_.key_field, type_.value_field)
    return ()
