"""The end of a job: every file that was written for it and is in no snapshot goes, and then the job's records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial

from pyiceberg.table import Table

from producer.common.errors import Corrupt, Reason, Refused
from producer.common.gc_pause import uncollected
from producer.iceberg.catalog import open_table
from producer.iceberg.manifest_reader import read_manifest_list, read_manifests
from producer.iceberg.pending_snapshot import delete_in_order
from producer.iceberg.snapshot_producer import metadata_files
from producer.model.plan import Plan
from producer.model.staged import Attempt, Staged
from producer.state.commit_history import snapshots_of
from producer.state.records import delete_files, parallel
from producer.state.round_store import RoundStore
from tasks.job.branch_head import added_by, committed
from tasks.job.context import JobContext
from workers.formats.output_files import Journal


@uncollected()
def clean_up(context: JobContext) -> tuple[str, ...]:
    """Delete what the job leaves behind; whoever still works on it sees that it is over and withdraws.

    A file that some snapshot refers to is never deleted: what is committed is read from the table, not from records.
    Files are told apart by path, since vectors share Puffin files. Where a record or a manifest cannot be read that
    would tell them apart, they are left.

    Returns:
        What could not be read, as sentences.
    """
    store = context.store
    store.close()
    plans, wrong = store.survey()
    needless = _Needless(context, plans)
    folders = store.folders()
    for plan in plans:
        _, unread = store.at(plan).survey_commits()
        # It may be of a commit that is about to happen, unless the head has moved on with this round or a later one.
        if unread and not any(needless.is_committed(later) for later in plans if later.round >= plan.round):
            wrong += unread
    needless.wrong += wrong
    for folder, units in folders:
        written = parallel(partial(_written, folder), range(units))
        needless.delete(path for paths, _ in written for path in paths)
        wrong += [sentence for _, unread in written for sentence in unread]
        parallel(partial(_clear_journals, folder), range(units))  # last: they lead to the files
    for plan in plans:
        for note in store.at(plan).commits():
            for name, snapshot_id in note.snapshots.items():
                needless.delete_commit(plan, name, snapshot_id)
    store.clear()
    return tuple(dict.fromkeys([*needless.wrong, *wrong]))


def withdraw(context: JobContext, plan: Plan, claim: Attempt, staged: Staged) -> None:
    """Delete what an attempt wrote that came to its end after its job; what of it was committed all the same stays."""
    store = context.store
    journal = _journal(store.at(plan), claim)
    most = len(staged.data)  # the first notes may be gone: they were there when the job ended
    noted = journal.paths(claim.tasks, most) if journal is not None else ()
    _Needless(context, [plan], tried=True).delete({*claim.paths, *staged.paths, *noted})
    if journal is not None:
        journal.clear(claim.tasks, most)
    store.at(plan).retract(claim, forget=True)
    store.remove_folders()


def merged_path(table: Table, plan: Plan, name: str) -> str:
    """Where a commit attempt of that name puts vectors that it merges with those of others."""
    file = f"{plan.request.token}-{plan.round}-{name}-merged-deletes.puffin"
    return table.location_provider().new_data_location(file)


class _Needless:
    """Deletes files of a job unless the table refers to them.

    Args:
        plans: Rounds of the job, the first of them that files are deleted of first.
        tried: Whether a commit may have happened, if that is known.
    """

    def __init__(self, context: JobContext, plans: list[Plan], *, tried: bool | None = None) -> None:
        self._context = context
        self._io = context.store.io
        self._first = plans[0] if plans else None
        notes = (note for plan in plans for note in context.store.at(plan).commits())
        self._tried = any(note.happened or not note.settled for note in notes) if tried is None else tried
        #: What could not be read of what tells needless files from others: then none is deleted.
        self.wrong: list[str] = []

    def is_committed(self, plan: Plan) -> bool:
        """Whether a round is in the table: then no other commit of it can happen."""
        snapshot = None
        with self._doubted():
            if self.table is not None:
                snapshot = committed(self.table, plan)
        return snapshot is not None

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files that were staged: those that carry the job's name and are not committed."""
        found = {path for path in paths if self._context.owns(path)}
        with self._doubted():
            if found and self.table is not None:
                found -= self._added
                if found:
                    found -= self._live
            elif self._tried:
                return  # the table may have been renamed with what was committed
        if not self.wrong:
            delete_files(self._io, found)

    def delete_commit(self, plan: Plan, name: str, snapshot_id: int) -> None:
        """Delete what was written for a commit alone, if it did not happen."""
        with self._doubted():
            if self.wrong or self.table is None:
                return
            self.delete([merged_path(self.table, plan, name)])
            if self.table.metadata.snapshot_by_id(snapshot_id) is None:
                found = metadata_files(self.table, name, snapshot_id)
                gone = [path for path in found if path not in self._manifests and self._context.places.hold(path)]
                delete_in_order(self._io, reversed(gone))

    @contextmanager
    def _doubted(self) -> Iterator[None]:
        """Keep in mind what cannot be read of the table."""
        try:
            yield
        except Corrupt as error:
            self.wrong.append(str(error))

    @cached_property
    def table(self) -> Table | None:
        """The job's table; None when it was dropped or replaced."""
        try:
            table = open_table(self._context.name.catalog, self._context.name.table)
        except Refused as error:
            if error.reason != Reason.UNKNOWN_TABLE:
                raise
            return None
        return table if self._first is None or self._first.table_uuid == str(table.metadata.table_uuid) else None

    @cached_property
    def _added(self) -> frozenset[str]:
        """What the job's own snapshots added."""
        assert self.table is not None
        snapshots = snapshots_of(self.table.metadata, self._context.id)
        return frozenset(file.path for snapshot in snapshots for file in added_by(self.table.io, snapshot))

    @cached_property
    def _live(self) -> frozenset[str]:
        """What snapshots of any writer refer to: the job's own may have expired since, and its files live on.

        They can only be in manifests that were written after the job was planned; in format version 1 nobody knows
        when that was.
        """
        assert self.table is not None
        planned = -1 if self._first is None or self._first.format_version < 2 else self._first.sequence_number
        manifests = {
            manifest
            for snapshot in self.table.metadata.snapshots
            if (snapshot.sequence_number or 0) > planned
            for manifest in read_manifest_list(self._io, snapshot)
            if manifest.sequence_number > planned
        }
        return frozenset(file.path for file in read_manifests(self._io, manifests))

    @cached_property
    def _manifests(self) -> frozenset[str]:
        """Every manifest of the table; a snapshot that has expired leaves its manifests to later ones."""
        assert self.table is not None
        return frozenset(
            manifest.manifest_path
            for snapshot in self.table.metadata.snapshots
            for manifest in read_manifest_list(self._io, snapshot)
        )


def _written(folder: RoundStore, unit: int) -> tuple[set[str], list[str]]:
    """What attempts at a unit have written, or may have; and what is wrong with those that cannot be read."""
    paths: set[str] = set()
    attempts, wrong = folder.survey(unit)
    for attempt in attempts:
        staged = folder.staged_by(attempt)
        paths.update(staged.paths if staged is not None else attempt.paths)
        if (journal := _journal(folder, attempt)) is not None:
            paths.update(journal.paths(attempt.tasks))
    return paths, wrong


def _clear_journals(folder: RoundStore, unit: int) -> None:
    for attempt in folder.survey(unit)[0]:
        if (journal := _journal(folder, attempt)) is not None:
            journal.clear(attempt.tasks)


def _journal(folder: RoundStore, attempt: Attempt) -> Journal | None:
    # Where it lies follows from the attempt: what the record says of it may lead anywhere.
    return Journal(folder.records.io, folder.journal(attempt)) if attempt.journal is not None else None
