"""Sort orders: parsing them, the table's own, and the columns that can be sorted by or interleaved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    YearTransform,
)
from pyiceberg.types import NestedField, PrimitiveType

from producer.common.errors import Reason, Refused
from producer.model.plan import SortKey

_EXAMPLE: Final = "an example: id desc nulls last, bucket(16, name)"
_TERM: Final = re.compile(
    r"""\s*(?:(?P<transform>\w+)\s*\((?P<arguments>[^()]*)\)|(?P<column>`[^`]+`|[^\s(),`]+))
    (?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_PLAIN: Final[dict[str, Transform[Any, Any]]] = {
    "identity": IdentityTransform(),
    "year": YearTransform(),
    "years": YearTransform(),
    "month": MonthTransform(),
    "months": MonthTransform(),
    "day": DayTransform(),
    "days": DayTransform(),
    "date": DayTransform(),
    "hour": HourTransform(),
    "hours": HourTransform(),
    "date_hour": HourTransform(),
}


def parse_sort_order(text: str, schema: Schema) -> tuple[SortKey, ...]:
    """Parse a sort order such as ``id desc nulls last, bucket(16, name) asc``.

    By default nulls come first in ascending and last in descending order.

    Raises:
        Refused: The text cannot be parsed, or names a column or a transform that cannot be sorted by.
    """
    return tuple(_key(text, term, schema) for term in _terms(text))


def table_sort_order(metadata: TableMetadata) -> tuple[SortKey, ...]:
    """Return the table's sort order.

    Raises:
        Refused: The table has none, or its sort order names a dropped column or an unknown transform.
    """
    order = metadata.sort_order_by_id(metadata.default_sort_order_id)
    if order is None or order.is_unsorted:
        raise Refused(Reason.USAGE, f"The table has no sort order: give one as sort-order, {_EXAMPLE}.")
    for field in order.fields:
        if field.source_id not in metadata.schema().field_ids or isinstance(field.transform, UnknownTransform):
            raise Refused(
                Reason.USAGE,
                f"The table's sort order has {field.transform} of column {field.source_id}, which cannot be sorted "
                "by: give another one as sort-order.",
            )
    return _keys(order)


def sort_order_id(keys: Sequence[SortKey], metadata: TableMetadata) -> int:
    """Return the id of the table's sort order with these keys, preferring the default one; 0 if there is none."""
    default = metadata.default_sort_order_id
    orders = sorted(metadata.sort_orders, key=lambda order: order.order_id != default)
    return next((o.order_id for o in orders if not o.is_unsorted and _keys(o) == tuple(keys)), 0)


def find_column(name: str, schema: Schema, option: str) -> NestedField:
    """Return a primitive column by its name, or by its path if it is in a struct.

    Raises:
        Refused: There is no such column, or it is nested in a list or a map.
    """
    try:
        field = schema.find_field(name)
    except ValueError as error:
        close = get_close_matches(name, schema.column_names, n=1)
        hint = f": did you mean {close[0]!r}?" if close else f"; it has {', '.join(schema.column_names[:20])}."
        raise Refused(Reason.USAGE, f"{option}: the table has no column {name!r}{hint}") from error
    try:
        schema.accessor_for_field(field.field_id)
    except ValueError as error:
        raise Refused(Reason.USAGE, f"{option}: {name!r} lies in a list or a map, which has no order.") from error
    if not isinstance(field.field_type, PrimitiveType):
        raise Refused(Reason.USAGE, f"{option}: {name!r} is a {field.field_type}, which has no order.")
    return field


def _keys(order: SortOrder) -> tuple[SortKey, ...]:
    return tuple(_key_of(field) for field in order.fields)


def _key_of(field: SortField) -> SortKey:
    return SortKey(
        field_id=field.source_id,
        transform=str(field.transform),
        descending=field.direction == SortDirection.DESC,
        nulls_first=field.null_order == NullOrder.NULLS_FIRST,
    )


def _terms(text: str) -> Iterator[re.Match[str]]:
    position = 0
    while True:
        term = _TERM.match(text, position)
        if term is None or (term.end() < len(text) and text[term.end()] != ","):
            at = position if term is None else term.end()
            raise Refused(
                Reason.USAGE, f"sort-order {text!r} cannot be understood from character {at + 1} on; {_EXAMPLE}."
            )
        yield term
        position = term.end() + 1
        if position > len(text):
            return


def _key(text: str, term: re.Match[str], schema: Schema) -> SortKey:
    name, transform = _call(text, term) if term["transform"] else (term["column"], IdentityTransform())
    field = find_column(name.strip("`"), schema, f"sort-order {text!r}")
    if not transform.can_transform(field.field_type):
        raise Refused(Reason.USAGE, f"sort-order {text!r}: {transform} takes no {field.field_type} such as {name!r}.")
    descending = (term["direction"] or "asc").lower() == "desc"
    nulls = term["nulls"].lower() if term["nulls"] else ("last" if descending else "first")
    return SortKey(
        field_id=field.field_id, transform=str(transform), descending=descending, nulls_first=nulls == "first"
    )


def _call(text: str, term: re.Match[str]) -> tuple[str, Transform[Any, Any]]:
    """Return the column and the transform of ``bucket(16, name)``, ``truncate(name, 4)`` or ``days(at)``."""
    name = term["transform"].lower()
    arguments = [argument.strip() for argument in term["arguments"].split(",")]
    if name in _PLAIN and len(arguments) == 1 and arguments[0]:
        return arguments[0], _PLAIN[name]
    if name in ("bucket", "truncate") and len(arguments) == 2:
        number, column = sorted(arguments, key=lambda argument: not argument.isdigit())
        if number.isdigit() and 0 < int(number) < 1 << 31 and column:
            return column, BucketTransform(int(number)) if name == "bucket" else TruncateTransform(int(number))
    known = ", ".join(["bucket(n, column)", "truncate(n, column)", "year", "month", "day", "hour", "identity"])
    raise Refused(Reason.USAGE, f"sort-order {text!r}: {term.group().strip()!r} is no transform; there are {known}.")
