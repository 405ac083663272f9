"""The options of a compaction resolved against a table: how it rewrites files, and which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import UnknownTransform, VoidTransform

from producer.common.errors import Reason, Refused
from producer.model.plan import Rewrite, SortKey, Strategy
from producer.planning.compact.options import JobOrder, Options, Tier
from producer.planning.compact.sort_order import find_column, parse_sort_order, sort_order_id, table_sort_order

_TARGET: Final = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Which files are rewritten, and which of them together."""

    #: Bytes: smaller files are too small, larger ones too large.
    min_size: int
    target_size: int
    max_size: int
    #: Only files that are too small are rewritten, whatever the deletes of others.
    small_only: bool
    #: Every file is rewritten, whatever its size and deletes.
    rewrite_all: bool
    min_input_files: int
    #: Bytes of a file group at most.
    max_group_size: int
    #: Files that are rewritten at most.
    max_files: int
    #: The number of delete files that is too many for one data file.
    delete_files: int
    #: The ratio of deleted rows, as far as known, that is too much.
    delete_ratio: float
    job_order: JobOrder


def resolve(options: Options, metadata: TableMetadata) -> tuple[Rewrite, Thresholds]:
    """Resolve options against a table.

    Returns:
        How files are rewritten, and which.

    Raises:
        Refused: The options do not fit the table, or contradict each other.
    """
    target, min_size, max_size = _sizes(options, metadata)
    order = _order(options, metadata)
    rewrite = Rewrite(
        strategy=options.strategy,
        target_size=target,
        min_size=min_size,
        max_size=max_size,
        spec_id=_spec(options, metadata),
        schema_id=metadata.schema().schema_id,
        keep_sequence_number=options.use_starting_sequence_number,
        remove_dangling=options.remove_dangling_deletes,
        order=order,
        sort_order_id=sort_order_id(order, metadata) if order else 0,
        zorder=_zorder(options, metadata),
    )
    thresholds = Thresholds(
        min_size=min_size,
        target_size=target,
        max_size=max_size,
        small_only=options.tier is Tier.MINOR,
        rewrite_all=options.rewrite_all,
        min_input_files=options.min_input_files,
        max_group_size=options.max_file_group_size_bytes,
        max_files=options.max_files_to_rewrite or _NO_LIMIT,
        delete_files=options.delete_file_threshold or _NO_LIMIT,
        delete_ratio=options.delete_ratio_threshold,
        job_order=options.rewrite_job_order,
    )
    return rewrite, thresholds


def _sizes(options: Options, metadata: TableMetadata) -> tuple[int, int, int]:
    """Return the target, minimum and maximum size of a file in bytes."""
    target, source = options.target_file_size_bytes, "target-file-size-bytes"
    if target is None:
        text = metadata.properties.get(_TARGET, str(TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)).strip()
        if not text.isdigit() or not 0 < int(text) < _NO_LIMIT:
            raise Refused(
                Reason.USAGE,
                f"The table's property {_TARGET}={text!r} is no number of bytes: give target-file-size-bytes.",
            )
        target, source = int(text), f"the table's {_TARGET}"
    min_size, max_size = options.min_file_size_bytes, options.max_file_size_bytes
    if min_size is None:
        min_size = target // 8 if options.tier is Tier.MINOR else target * 3 // 4
    elif min_size >= target:
        raise Refused(
            Reason.USAGE, f"min-file-size-bytes={min_size} is not allowed: it must be less than {source}, {target}."
        )
    if max_size is None:
        max_size = target * 9 // 5
    elif max_size <= target:
        raise Refused(
            Reason.USAGE, f"max-file-size-bytes={max_size} is not allowed: it must be more than {source}, {target}."
        )
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
            raise Refused(
                Reason.USAGE,
                f"Partition spec {spec_id} cannot be written: its field {field.name!r} is made from {why}; "
                "give another one as output-spec-id.",
            )
    return spec_id


def _order(options: Options, metadata: TableMetadata) -> tuple[SortKey, ...]:
    if options.strategy is not Strategy.SORT:
        return ()
    if options.sort_order is None:
        return table_sort_order(metadata)
    return parse_sort_order(options.sort_order, metadata.schema())


def _zorder(options: Options, metadata: TableMetadata) -> tuple[int, ...]:
    field_ids: list[int] = []
    for name in options.zorder:
        column = find_column(name.strip("`"), metadata.schema(), "zorder")
        if column.field_id in field_ids:
            raise Refused(Reason.USAGE, f"zorder: {name!r} is named twice.")
        field_ids.append(column.field_id)
    return tuple(field_ids)
