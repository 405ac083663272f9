"""Pending commits: each is recorded on storage before anything is written for it, until its outcome is known.

The record shows whether files are those of a commit that died or of one that is about to happen.
"""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass

from pyiceberg.table import Table

from producer.common.errors import IcefleetError
from producer.model.plan import Plan
from producer.model.staged import CommitNote
from producer.planning.planner import branch_head
from producer.state.job_store import JobStore
from producer.state.round_store import RoundStore
from tasks.job.context import JobContext

#: Seconds after which a recorded commit does not happen any more: no committer sends one that it recorded earlier.
MAX_AGE = 300.0


@dataclass
class PendingCommit:
    """One committer's record of its commit of a round."""

    store: JobStore
    records: RoundStore
    number: int
    note: CommitNote

    @classmethod
    def begin(cls, store: JobStore, plan: Plan) -> PendingCommit:
        """Record that a commit begins."""
        note = CommitNote(token=secrets.token_hex(8), started=time.time())
        records = store.at(plan)
        return cls(store, records, records.claim_commit(note), note)

    def begin_attempt(self, head: int, snapshot_id: int | None) -> str:
        """Record that another attempt begins on a head; return the name that its files carry.

        An attempt that makes no snapshot makes no files.
        """
        name = str(uuid.uuid4())
        added = {name: snapshot_id} if snapshot_id is not None else {}
        self._update(started=time.time(), head=head, snapshots=self.note.snapshots | added)
        return name

    @property
    def is_fresh(self) -> bool:
        """Whether the attempt may be sent: other committers wait for it as long again."""
        return time.time() - self.note.started < MAX_AGE / 2

    def discard_attempt(self, name: str) -> None:
        """Record that nothing is left of an attempt."""
        self._update(snapshots={known: id_ for known, id_ in self.note.snapshots.items() if known != name})

    def abandon(self) -> None:
        """Record that the commit does not happen, and that files of it may be left."""
        self._update(settled=True)

    def settle(self, *, happened: bool) -> None:
        """Record the outcome: the commit has happened, or it never will."""
        self._update(settled=True, happened=happened, snapshots={})
        if self.store.is_closed():  # else the record would stay for ever
            self.records.delete_settled_commits(self.number)

    def _update(self, **changes: object) -> None:
        self.note = self.note.model_copy(update=changes)
        self.records.update_commit(self.number, self.note)


def has_pending_commit(context: JobContext, plan: Plan) -> bool:
    """Return whether a committer may be about to commit a round.

    A commit on a head that the branch has left will fail, and one that was recorded long ago is dead.
    """
    now = time.time()
    notes = context.store.at(plan).commits()
    pending = [note for note in notes if not note.settled and abs(now - note.started) < MAX_AGE]
    if not pending:
        return False
    try:
        head = branch_head(context.reload(plan), plan.request.branch)
    except IcefleetError:
        return True
    return head is not None and any(note.head == head.snapshot_id for note in pending)


def merged_vectors_path(table: Table, plan: Plan, name: str) -> str:
    """Return where a commit attempt of that name writes vectors that it merges with those of other writers."""
    file = f"{plan.request.token}-{plan.round}-{name}-merged-deletes.puffin"
    return table.location_provider().new_data_location(file)
