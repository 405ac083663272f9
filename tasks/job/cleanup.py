"""The clean-up of a job: delete every file that was written for it and is in no snapshot, then the job's records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Final

from pyiceberg.table import Table

from producer.common.errors import Corrupt, Reason, Refused
from producer.iceberg.catalog import open_table
from producer.iceberg.manifest_reader import pause_gc, read_manifest_list, read_manifests
from producer.iceberg.snapshot_producer import metadata_files
from producer.model.plan import Plan
from producer.model.staged import Attempt, Staged
from producer.state.commit_history import snapshots_of
from producer.state.round_store import RoundStore
from producer.storage.files import map_parallel
from tasks.job.branch_head import added_files, round_snapshot
from tasks.job.context import JobContext
from tasks.job.pending_commit import merged_vectors_path
from workers.formats.output_files import Journal

#: Kinds of records that lead to a job's files.
_LEADING: Final = ("plan-", "planner-", "commit-", "attempt-", "staged-")


@pause_gc()
def clean_up(context: JobContext) -> tuple[str, ...]:
    """Delete what the job leaves behind; return what could not be read, as sentences.

    The job is closed: a worker that is still busy with it sees that and deletes its own files. A file that a snapshot
    refers to is never deleted: what is committed is read from the table, not from records. Files are compared by path,
    since deletion vectors share Puffin files. If a record or a manifest that is needed to tell uncommitted files from
    committed ones cannot be read, the files stay.
    """
    recorded = context.snapshot(*_LEADING)
    store = recorded.store
    plans, wrong = store.all_plans()
    uncommitted = _UncommittedFiles(recorded, plans)
    folders = [(folder.snapshot(), units) for folder, units in store.folders()]
    for plan in plans:
        _, unread = store.at(plan).all_commits()
        # It may be the note of a commit that is about to happen, unless this round or a later one is committed.
        if unread and not any(uncommitted.is_committed(later) for later in plans if later.round >= plan.round):
            wrong += unread
    uncommitted.wrong += wrong
    for folder, units in folders:
        written = map_parallel(partial(_written_paths, folder), range(units))
        uncommitted.delete(path for paths, _ in written for path in paths)
        wrong += [sentence for _, unread in written for sentence in unread]
        if folder.records.listed is None:  # else all records of the folder are deleted together
            map_parallel(partial(_clear_journals, folder), range(units))  # last: they lead to the files
    for plan in plans:
        for note in store.at(plan).commits():
            for name, snapshot_id in note.snapshots.items():
                uncommitted.delete_commit(plan, name, snapshot_id)
    context.store.clear()
    return tuple(dict.fromkeys([*uncommitted.wrong, *wrong]))


def withdraw_attempt(context: JobContext, plan: Plan, claim: Attempt, staged: Staged) -> None:
    """Delete what an attempt wrote that ended after its job; files that are committed stay."""
    store = context.store
    journal = _journal(store.at(plan), claim)
    most = len(staged.data)  # the clean-up may have deleted the first notes already
    journaled = journal.paths(claim.tasks, most) if journal is not None else ()
    _UncommittedFiles(context, [plan], may_be_committed=True).delete({*claim.paths, *staged.paths, *journaled})
    if journal is not None:
        journal.clear(claim.tasks, most)
    store.at(plan).retract(claim, forget=True)
    store.remove_folders()


def discard_attempt(context: JobContext, attempt: Attempt) -> None:
    """Delete all that an attempt wrote; only if certainly no process has seen its staged record."""
    deleter = context.deleter
    deleter.delete(filter(context.owns, attempt.paths))
    if attempt.journal is not None:
        journal = Journal(context.store.io, attempt.journal)
        deleter.delete(filter(context.owns, journal.paths(attempt.tasks)))
        journal.clear(attempt.tasks)


class _UncommittedFiles:
    """Deletes files of rounds of a job, the earliest of which is the first plan, unless the table refers to them."""

    def __init__(self, context: JobContext, plans: list[Plan], *, may_be_committed: bool | None = None) -> None:
        self._context = context
        self._io = context.store.io
        self._first = plans[0] if plans else None
        notes = (note for plan in plans for note in context.store.at(plan).commits())
        if may_be_committed is None:
            may_be_committed = any(note.happened or not note.settled for note in notes)
        self._may_be_committed = may_be_committed
        #: What cannot be read although it may refer to the files, as sentences: if there is any, none is deleted.
        self.wrong: list[str] = []

    def is_committed(self, plan: Plan) -> bool:
        """Return whether a round is in the table: then no other commit of it can happen."""
        snapshot = None
        with self._note_corrupt():
            if self.table is not None:
                snapshot = round_snapshot(self.table, plan)
        return snapshot is not None

    def delete(self, paths: Iterable[str]) -> None:
        """Delete staged files that carry the job's token and are not committed."""
        deleter = self._context.deleter
        found = {path for path in paths if self._context.owns(path)}
        with self._note_corrupt():
            if found and self.table is not None:
                found -= self._added
                if found:  # else no other manifest need be read
                    found -= self._live
            elif self._may_be_committed:
                return  # the table may have been renamed, and refers to the files
        if not self.wrong:
            deleter.delete(found)

    def delete_commit(self, plan: Plan, name: str, snapshot_id: int) -> None:
        """Delete what was written for a commit attempt alone, if the attempt did not happen."""
        with self._note_corrupt():
            if self.wrong or self.table is None:
                return
            self.delete([merged_vectors_path(self.table, plan, name)])
            if self.table.metadata.snapshot_by_id(snapshot_id) is None:
                unused = [
                    path
                    for path in metadata_files(self.table, name, snapshot_id)
                    if path not in self._manifests and self._context.locations.contain(path)
                ]
                self._context.deleter.with_marker(name).delete_in_order(reversed(unused))

    @contextmanager
    def _note_corrupt(self) -> Iterator[None]:
        try:
            yield
        except Corrupt as error:
            self.wrong.append(str(error))

    @cached_property
    def table(self) -> Table | None:
        """The job's table; None if it was dropped or replaced."""
        try:
            table = open_table(self._context.name.catalog, self._context.name.table)
        except Refused as error:
            if error.reason != Reason.UNKNOWN_TABLE:
                raise
            return None
        return table if self._first is None or self._first.table_uuid == str(table.metadata.table_uuid) else None

    @cached_property
    def _added(self) -> frozenset[str]:
        """The files that the job's own snapshots added."""
        assert self.table is not None
        snapshots = snapshots_of(self.table.metadata, self._context.id)
        return frozenset(file.path for snapshot in snapshots for file in added_files(self.table.io, snapshot))

    @cached_property
    def _live(self) -> frozenset[str]:
        """The files that snapshots of any writer refer to: the job's own may have expired while its files live on.

        They can only be in manifests that were written after the job was planned; format version 1 has no sequence
        numbers to tell which.
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


def _written_paths(folder: RoundStore, unit: int) -> tuple[set[str], list[str]]:
    """Return the paths that attempts at a unit may have written, and what is wrong with unreadable records."""
    paths: set[str] = set()
    attempts, wrong = folder.all_attempts(unit)
    for attempt in attempts:
        staged = folder.staged_by(attempt)
        paths.update(staged.paths if staged is not None else attempt.paths)
        if (journal := _journal(folder, attempt)) is not None:
            paths.update(journal.paths(attempt.tasks))
    return paths, wrong


def _clear_journals(folder: RoundStore, unit: int) -> None:
    for attempt in folder.all_attempts(unit)[0]:
        if (journal := _journal(folder, attempt)) is not None:
            journal.clear(attempt.tasks)


def _journal(folder: RoundStore, attempt: Attempt) -> Journal | None:
    # The attempt determines the path: the path in the record may lead anywhere.
    if attempt.journal is None:
        return None
    return Journal(folder.records.io, folder.journal(attempt), folder.records.listed)
