"""The planner: one snapshot's metadata becomes a plan. Reads manifests, writes nothing."""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from producer.common.errors import Corrupt, Reason, Refused
from producer.iceberg.manifest_reader import pause_gc
from producer.iceberg.pyiceberg_metadata import check_no_metadata_is_lost
from producer.iceberg.table_properties import check_properties
from producer.model.job import Report, Request
from producer.model.plan import Plan
from producer.planning import OPERATIONS
from producer.planning.partition_filter import PartitionFilter
from producer.planning.units import PlanWithUnits
from producer.state.job_store import branches_of


def branch_head(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot that a branch points to, or None for the main branch of an empty table.

    Raises:
        Refused: There is no such branch, or it is a tag.
        Corrupt: The table has no such snapshot.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        if branch == "main" and table.metadata.current_snapshot_id is None:
            return None
        known = ", ".join(sorted(branches_of(table.metadata))) or "none"
        raise Refused(Reason.UNKNOWN_BRANCH, f"There is no branch {branch!r}; the table has {known}.")
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise Refused(Reason.UNKNOWN_BRANCH, f"{branch!r} is a tag: only branches can be committed to.")
    if (snapshot := table.metadata.snapshot_by_id(ref.snapshot_id)) is None:
        name = ".".join(table.name())
        raise Corrupt(f"The metadata of {name} lacks snapshot {ref.snapshot_id}, the head of branch {branch!r}.")
    return snapshot


def check_request(table: Table, request: Request) -> str | None:
    """Check a request against the table's metadata alone.

    Returns:
        A sentence if there is nothing to do, else None.

    Raises:
        Refused: The format version, the branch, the filter, the options, the table's properties or the type of a column
            do not allow the request.
    """
    version = table.metadata.format_version
    if version > 3:
        sentence = f"{request.table} has format version {version}; versions 2 and 3 are supported."
        raise Refused(Reason.FORMAT_VERSION, sentence)
    head = branch_head(table, request.branch)
    PartitionFilter(request.where, table.metadata)
    operation = OPERATIONS[request.operation]
    check_properties(table.metadata, data_files=operation.writes_data_files, delete_files=operation.writes_delete_files)
    check_no_metadata_is_lost(table)
    return operation.check_table(table, request) or ("the table has no snapshot" if head is None else None)


@pause_gc()
def plan(
    table: Table,
    request: Request,
    *,
    unit_bytes: int,
    round_: int = 0,
    only: frozenset[str] | None = None,
    before: Report | None = None,
) -> PlanWithUnits:
    """Plan a request on the branch's head.

    ``unit_bytes`` and ``only`` are those of :class:`~producer.planning.definition.PlanOperation`. ``round_`` is how
    many times the job was planned before, and ``before`` what earlier rounds did.

    Raises:
        Refused: See :func:`check_request`.
        Corrupt: A manifest cannot be read or contradicts the specification.
    """
    nothing = check_request(table, request)
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
        return PlanWithUnits(base, ())
    return OPERATIONS[request.operation].plan(table, base, head, unit_bytes=unit_bytes, only=only)
