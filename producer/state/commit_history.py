"""Jobs in a table's own history: the summaries of their snapshots carry the job's id."""

from __future__ import annotations

from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from producer.model.job import JobId, Report, Status

#: Summary properties of the snapshots that jobs make.
JOB: Final = "icefleet.job-id"
ROUND: Final = "icefleet.round"
OPERATION: Final = "icefleet.operation"
UNITS: Final = "icefleet.units"
FAILED_UNITS: Final = "icefleet.failed-units"

#: Counts of a report and the summary property that each is the sum of.
COUNTS: Final = {
    "removed_equality_delete_files": "removed-equality-delete-files",
    "added_position_delete_files": "added-position-delete-files",
    "added_dvs": "added-dvs",
    "added_position_deletes": "added-position-deletes",
    "rewritten_data_files": "deleted-data-files",
    "added_data_files": "added-data-files",
    "removed_delete_files": "removed-delete-files",
    "removed_bytes": "removed-files-size",
    "added_bytes": "added-files-size",
}


def snapshots_of(metadata: TableMetadata, job: str) -> list[Snapshot]:
    """Return the snapshots that a job made on any branch and that have not expired."""
    return [s for s in metadata.snapshots if s.summary is not None and s.summary[JOB] == job]


def count(snapshot: Snapshot, name: str) -> int:
    """Return a count of a snapshot's summary; 0 if it has none."""
    return int((snapshot.summary[name] if snapshot.summary else None) or 0)


def report_from_history(metadata: TableMetadata, job: JobId, job_id: str) -> Report | None:
    """Return a job's report as its snapshots have it, or None if no snapshot carries its id."""
    snapshots = snapshots_of(metadata, job_id)
    if not snapshots:
        return None
    failed = sum(count(s, FAILED_UNITS) for s in snapshots)
    sums = {name: sum(count(s, key) for s in snapshots) for name, key in COUNTS.items()}
    return Report(
        job=job_id,
        table=job.table,
        catalog=job.catalog,
        operation=job.operation,
        status=Status.PARTIAL if failed else Status.COMMITTED,
        snapshot_id=snapshots[-1].snapshot_id,
        units=sum(count(s, UNITS) for s in snapshots),
        failed_units=failed,
        seconds=round(max(snapshots[-1].timestamp_ms / 1000 - (job.submitted or float("inf")), 0.0), 3),
        **sums,
    )


def jobs_of(metadata: TableMetadata) -> dict[str, float]:
    """Return the jobs that committed to a table with the time of their last snapshot, in seconds since 1970."""
    return {s.summary[JOB]: s.timestamp_ms / 1000 for s in metadata.snapshots if s.summary and s.summary[JOB]}
