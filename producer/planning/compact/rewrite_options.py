"""The options of a compaction resolved against a table: how it rewrites files, and in which order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder
from pyiceberg.transforms import IdentityTransform, Transform, UnknownTransform, VoidTransform, parse_transform
from pyiceberg.types import NestedField, PrimitiveType

from producer.common.errors import Reason, Refused, suggest
from producer.model.plan import Rewrite, SortKey, Strategy
from producer.planning.compact.options import Options, Tier

_TARGET: Final = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
_NO_LIMIT: Final = 1 << 62
#: Columns of a z-order at most: workers take a bit or more of each, of 62 (workers/sorting/zorder.py).
_MAX_ZORDER: Final = 62

_EXAMPLE: Final = "an example: id desc nulls last, bucket(16, name)"
_TERM: Final = re.compile(
    r"""\s*(?:(?P<transform>\w+)\s*\((?P<arguments>[^()]*)\)|(?P<column>`[^`]+`|[^\s(),`]+))
    (?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
#: Transforms without a parameter, by the names that Iceberg and Spark have for them.
_PLAIN: Final = {
    "identity": "identity",
    **dict.fromkeys(("year", "years"), "year"),
    **dict.fromkeys(("month", "months"), "month"),
    **dict.fromkeys(("day", "days", "date"), "day"),
    **dict.fromkeys(("hour", "hours", "date_hour"), "hour"),
}


def resolve(options: Options, metadata: TableMetadata) -> Rewrite:
    """Return how a table's files are rewritten by these options.

    Raises:
        Refused: The options do not fit the table, or contradict each other.
    """
    target, min_size, max_size = _sizes(options, metadata)
    order = _order(options, metadata)
    return Rewrite(
        strategy=options.strategy,
        target_size=target,
        min_size=min_size,
        max_size=max_size,
        spec_id=_spec(options, metadata),
        schema_id=metadata.schema().schema_id,
        keep_sequence_number=options.use_starting_sequence_number,
        remove_dangling=options.remove_dangling_deletes,
        order=order,
        sort_order_id=_sort_order_id(order, metadata) if order else 0,
        zorder=_zorder(options, metadata),
    )


def _sizes(options: Options, metadata: TableMetadata) -> tuple[int, int, int]:
    """Return the target, minimum and maximum size of a file in bytes."""
    target, source = options.target_file_size_bytes, "target-file-size-bytes"
    if target is None:
        text = metadata.properties.get(_TARGET, str(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)).strip()
        if not text.isdecimal() or not 0 < int(text) < _NO_LIMIT:
            sentence = f"The table's property {_TARGET}={text!r} is no number of bytes: give target-file-size-bytes."
            raise Refused(Reason.USAGE, sentence)
        target, source = int(text), f"the table's {_TARGET}"
    min_size, max_size = options.min_file_size_bytes, options.max_file_size_bytes
    if min_size is None:
        min_size = target // 8 if options.tier is Tier.MINOR else target * 3 // 4
    elif min_size >= target:
        sentence = f"min-file-size-bytes={min_size} is not allowed: it must be less than {source}, {target}."
        raise Refused(Reason.USAGE, sentence)
    if max_size is None:
        max_size = target * 9 // 5
    elif max_size <= target:
        sentence = f"max-file-size-bytes={max_size} is not allowed: it must be more than {source}, {target}."
        raise Refused(Reason.USAGE, sentence)
    return target, min_size, max(max_size, target + 1)


def _spec(options: Options, metadata: TableMetadata) -> int:
    spec_id = metadata.default_spec_id if options.output_spec_id is None else options.output_spec_id
    spec = metadata.specs().get(spec_id)
    if spec is None:
        known = ", ".join(map(str, sorted(metadata.specs())))
        raise Refused(Reason.USAGE, f"output-spec-id={spec_id} is not allowed: the table has {known}.")
    for field in spec.fields:
        missing = field.source_id not in metadata.schema().field_ids and not isinstance(field.transform, VoidTransform)
        if missing or isinstance(field.transform, UnknownTransform):
            why = "a dropped column" if missing else f"{field.transform}, which is unknown"
            sentence = f"its field {field.name!r} is made from {why}; give another one as output-spec-id."
            raise Refused(Reason.USAGE, f"Partition spec {spec_id} cannot be written: {sentence}")
    return spec_id


def _order(options: Options, metadata: TableMetadata) -> tuple[SortKey, ...]:
    if options.strategy is not Strategy.SORT:
        return ()
    if (text := options.sort_order) is None:
        return _table_order(metadata)
    return tuple(_key(text, term, metadata.schema()) for term in _terms(text))


def _zorder(options: Options, metadata: TableMetadata) -> tuple[int, ...]:
    field_ids: list[int] = []
    for name in options.zorder:
        column = _column(name, metadata.schema(), "zorder")
        if column.field_id in field_ids:
            raise Refused(Reason.USAGE, f"zorder: {name!r} is named twice.")
        field_ids.append(column.field_id)
    if len(field_ids) > _MAX_ZORDER:
        raise Refused(Reason.USAGE, f"zorder: {len(field_ids)} columns are given, and {_MAX_ZORDER} are allowed.")
    return tuple(field_ids)


def _table_order(metadata: TableMetadata) -> tuple[SortKey, ...]:
    """Return the table's sort order, unless it names a dropped column or an unknown transform."""
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


def _sort_order_id(keys: Sequence[SortKey], metadata: TableMetadata) -> int:
    """Return the id of the table's sort order with these keys, preferring the default one; 0 if there is none."""
    default = metadata.default_sort_order_id
    orders = sorted(metadata.sort_orders, key=lambda order: order.order_id != default)
    return next((o.order_id for o in orders if not o.is_unsorted and _keys(o) == tuple(keys)), 0)


def _column(name: str, schema: Schema, option: str) -> NestedField:
    """Return a primitive column outside of lists and maps by its name, or by its path if it is in a struct."""
    try:
        field = schema.find_field(name)
    except ValueError as error:
        sentence = f"{option}: the table has no column {name!r}{suggest(name, schema.column_names)}"
        raise Refused(Reason.USAGE, sentence) from error
    try:
        schema.accessor_for_field(field.field_id)
    except ValueError as error:
        raise Refused(Reason.USAGE, f"{option}: {name!r} lies in a list or a map, which has no order.") from error
    if not isinstance(field.field_type, PrimitiveType):
        raise Refused(Reason.USAGE, f"{option}: {name!r} is a {field.field_type}, which has no order.")
    return field


def _keys(order: SortOrder) -> tuple[SortKey, ...]:
    return tuple(
        SortKey(
            field_id=field.source_id,
            transform=str(field.transform),
            descending=field.direction == SortDirection.DESC,
            nulls_first=field.null_order == NullOrder.NULLS_FIRST,
        )
        for field in order.fields
    )


def _terms(text: str) -> Iterator[re.Match[str]]:
    position = 0
    while True:
        term = _TERM.match(text, position)
        if term is None or (term.end() < len(text) and text[term.end()] != ","):
            at = position if term is None else term.end()
            sentence = f"sort-order {text!r} cannot be understood from character {at + 1} on; {_EXAMPLE}."
            raise Refused(Reason.USAGE, sentence)
        yield term
        position = term.end() + 1
        if position > len(text):
            return


def _key(text: str, term: re.Match[str], schema: Schema) -> SortKey:
    """Return the key of a term; by default nulls come first in ascending and last in descending order."""
    name, transform = _call(text, term) if term["transform"] else (term["column"], IdentityTransform())
    field = _column(name.strip("`"), schema, f"sort-order {text!r}")
    if not transform.can_transform(field.field_type):
        raise Refused(Reason.USAGE, f"sort-order {text!r}: {transform} takes no {field.field_type} such as {name!r}.")
    descending = (term["direction"] or "asc").lower() == "desc"
    nulls_first = term["nulls"].lower() == "first" if term["nulls"] else not descending
    return SortKey(field_id=field.field_id, transform=str(transform), descending=descending, nulls_first=nulls_first)


def _call(text: str, term: re.Match[str]) -> tuple[str, Transform[Any, Any]]:
    """Return the column and the transform of ``bucket(16, name)``, ``truncate(name, 4)`` or ``days(at)``."""
    name = term["transform"].lower()
    arguments = [argument.strip() for argument in term["arguments"].split(",")]
    if name in _PLAIN and len(arguments) == 1 and arguments[0]:
        return arguments[0], parse_transform(_PLAIN[name])
    if name in ("bucket", "truncate") and len(arguments) == 2:
        number, column = sorted(arguments, key=lambda argument: not argument.isdecimal())
        if number.isdecimal() and 0 < int(number) < 1 << 31 and column:
            return column, parse_transform(f"{name}[{int(number)}]")
    known = ", ".join(["bucket(n, column)", "truncate(n, column)", "year", "month", "day", "hour", "identity"])
    raise Refused(Reason.USAGE, f"sort-order {text!r}: {term.group().strip()!r} is no transform; there are {known}.")
