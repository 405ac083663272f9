"""The end of a job: every file that was staged and is in no snapshot goes, and then the job's records."""

from __future__ import annotations

from producer.catalog import open_table
from producer.errors import IcefleetError
from producer.history import snapshots_of
from producer.messages import JobId, Plan
from producer.store import JobStore, delete_files, parallel
from tasks.head import added_by
from tasks.job import JobContext


def clean_up(context: JobContext) -> None:
    """Delete what the job leaves behind; whoever still works on it sees that it is over and withdraws.

    A file that some snapshot refers to is never deleted: what is committed is read from the table, not from records.
    Files are told apart by path, since vectors share Puffin files.
    """
    store = context.store
    store.close()
    kept = _committed(context.name, context.id)
    for plan in store.plans():
        parallel(lambda unit, plan=plan: _delete_staged(store, plan, unit.number, kept), plan.units)  # type: ignore[misc]
    store.clear()


def _delete_staged(store: JobStore, plan: Plan, unit: int, kept: frozenset[str]) -> None:
    for attempt in store.attempts(plan.round, unit):
        staged = store.staged_by(plan.round, attempt)
        written = staged.paths if staged is not None else frozenset(attempt.paths)
        delete_files(store.io, written - kept)


def _committed(job: JobId, job_id: str) -> frozenset[str]:
    try:
        table = open_table(job.catalog, job.table)
    except IcefleetError:
        return frozenset()  # the table is gone, and with it everything that could refer to a file
    return frozenset(
        file.path for snapshot in snapshots_of(table.metadata, job_id) for file in added_by(table.io, snapshot)
    )
