"""The planner: one snapshot's metadata becomes a plan. It reads manifests only; nothing is written here."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from producer.common.errors import Reason, Refused
from producer.common.gc_pause import uncollected
from producer.iceberg.table_properties import check_properties
from producer.iceberg.unmodelled_metadata import refuse_what_would_be_lost
from producer.iceberg.unsupported_columns import column_that_is_not_rewritten
from producer.model.job import Operation, Report, Request
from producer.model.plan import Plan
from producer.planning.compact import CompactionPlanning
from producer.planning.convert import ConversionPlanning
from producer.planning.options import Options
from producer.planning.partition_filter import Selection
from producer.planning.rewrite_options import resolve
from producer.planning.units import Planned

SUPPORTED_VERSIONS = (2, 3)


def branch_head(table: Table, branch: str) -> Snapshot | None:
    """The snapshot that a branch points to; None for the main branch of an empty table.

    Raises:
        Refused: there is no such branch, or it is a tag.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        if branch == "main" and table.metadata.current_snapshot_id is None:
            return None
        known = ", ".join(
            sorted(n for n, r in table.metadata.refs.items() if r.snapshot_ref_type == SnapshotRefType.BRANCH)
        )
        raise Refused(Reason.UNKNOWN_BRANCH, f"There is no branch {branch!r}; the table has {known or 'none'}.")
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise Refused(Reason.UNKNOWN_BRANCH, f"{branch!r} is a tag: only branches can be committed to.")
    return table.metadata.snapshot_by_id(ref.snapshot_id)


def check(table: Table, request: Request) -> str | None:
    """What can be said from the table's metadata alone: a sentence when there is nothing to do.

    Raises:
        Refused: the format version, the branch, the filter, the options, the table's properties or a column's type do
            not allow it.
    """
    version = table.metadata.format_version
    if version > max(SUPPORTED_VERSIONS):
        raise Refused(
            Reason.FORMAT_VERSION, f"{request.table} has format version {version}; versions 2 and 3 are supported."
        )
    head = branch_head(table, request.branch)
    Selection(request.where, table.metadata)
    check_properties(table.metadata, request.operation)
    refuse_what_would_be_lost(table)
    if request.operation is Operation.COMPACT:
        resolve(Options.parse(request.options), table.metadata)
        if (column := column_that_is_not_rewritten(table.schema())) is not None:
            name = table.schema().find_column_name(column.field_id)
            sentence = f"Column {name} of {request.table} is of type {column.field_type}: it is not compacted so far."
            raise Refused(Reason.COLUMN_TYPE, sentence)
    elif version == 1:
        return "a table of format version 1 has no row-level deletes"
    return "the table has no snapshot" if head is None else None


@uncollected()
def plan(
    table: Table,
    request: Request,
    *,
    unit_bytes: int,
    round_: int = 0,
    only: frozenset[str] | None = None,
    before: Report | None = None,
) -> Planned:
    """Plan work on the branch's head.

    Args:
        table: Freshly loaded.
        request: What is asked for.
        unit_bytes: What one unit reads at most, as long as a single file (compaction: file group) allows.
        round_: How many times the job was planned before.
        only: Paths of what is left to do in a later round: equality deletes, or data files (compaction); None for all.
        before: What earlier rounds did.

    Raises:
        Refused: see :func:`check`.
        Corrupt: a manifest cannot be read or contradicts the specification.
    """
    nothing = check(table, request)
    head = branch_head(table, request.branch)
    base = Plan(
        request=request,
        round=round_,
        table_uuid=str(table.metadata.table_uuid),
        location=table.metadata.location,
        format_version=table.metadata.format_version,
        snapshot_id=head.snapshot_id if head else None,
        sequence_number=(head.sequence_number or 0) if head else 0,
        nothing=nothing,
        before=before,
    )
    if nothing is not None or head is None:
        return Planned(base, ())
    planning = CompactionPlanning if request.operation is Operation.COMPACT else ConversionPlanning
    return planning(table, base, head, unit_bytes, only).planned()
