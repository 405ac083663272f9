"""Pending commits: each is recorded on storage before anything is written for it, until its outcome is known.

The record shows whether files are those of a commit that died or of one that is about to happen.
"""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from pyiceberg.table import Table

from producer.common.errors import IcefleetError
from producer.model.plan import Plan
from producer.model.staged import CommitNote
from producer.planning.planner import branch_head
from producer.state.job_store import JobStore
from producer.state.round_store import RoundStore
from tasks.job.context import JobContext

#: Seconds after which a commit that another process has seen the record of does not happen any more.
MAX_AGE: Final = 300.0
#: Seconds in which a committer sends the commit that it recorded, or gives it up.
_MAX_PREPARATION: Final = MAX_AGE / 2
#: Seconds that the clocks of machines may differ.
_MAX_CLOCK_DIFFERENCE: Final = 3600.0


@dataclass
class PendingCommit:
    """One committer's record of its commit of a round."""

    store: JobStore
    records: RoundStore
    note: CommitNote
    #: The number of the record; None until the first attempt begins.
    number: int | None = None
    began: float = 0.0

    @classmethod
    def of(cls, store: JobStore, plan: Plan) -> PendingCommit:
        """Return the commit of a round, of which nothing is recorded so far."""
        return cls(store, store.at(plan), CommitNote(token=secrets.token_hex(8), started=time.time()))

    def begin_attempt(self, head: int, snapshot_id: int | None) -> str:
        """Record that another attempt begins on a head; return the name that its files carry.

        An attempt that makes no snapshot makes no files.
        """
        name = str(uuid.uuid4())
        self.began = time.monotonic()
        added = {name: snapshot_id} if snapshot_id is not None else {}
        self._update(started=time.time(), head=head, snapshots=self.note.snapshots | added)
        if self.number is None:
            self.number = self.records.claim_commit(self.note)
        return name

    @property
    def is_fresh(self) -> bool:
        """Whether the attempt may be sent: other committers wait for it as long again.

        By both clocks, since one stands still while a machine is suspended, and the other may be set back.
        """
        return max(time.monotonic() - self.began, time.time() - self.note.started) < _MAX_PREPARATION

    def discard_attempt(self, name: str) -> None:
        """Record that nothing is left of an attempt."""
        self._update(snapshots={known: id_ for known, id_ in self.note.snapshots.items() if known != name})

    def abandon(self) -> None:
        """Record that the commit does not happen, and that files of it may be left."""
        self._update(settled=True)

    def settle(self, *, happened: bool) -> None:
        """Record the outcome: the commit has happened, or it never will."""
        self._update(settled=True, happened=happened, snapshots={})
        if self.number is not None and self.store.is_closed():  # else the record would stay for ever
            self.records.delete_settled_commits(self.number)

    def _update(self, **changes: object) -> None:
        self.note = self.note.model_copy(update=changes)
        if self.number is not None:
            self.records.update_commit(self.number, self.note)


def has_pending_commit(context: JobContext, plan: Plan) -> bool:
    """Return whether a committer may be about to commit a round.

    A commit on a head that the branch has left will fail, and one that was recorded long ago is dead. How long ago is
    counted by this process alone, from its first look: the clocks of two machines may differ.
    """
    pending = [note for note in context.store.at(plan).commits() if not note.settled and _may_be_sent(note)]
    if not pending:
        return False
    try:
        head = branch_head(context.reload(plan), plan.request.branch)
    except IcefleetError:
        return True
    return head is not None and any(note.head == head.snapshot_id for note in pending)


def _may_be_sent(note: CommitNote) -> bool:
    seconds = time.monotonic() - _first_look(note.token, note.started)
    return seconds < MAX_AGE and abs(time.time() - note.started) < MAX_AGE + _MAX_CLOCK_DIFFERENCE


@lru_cache(maxsize=1024)
def _first_look(token: str, started: float) -> float:
    """Return when this process first looked at an attempt, by its monotonic clock."""
    return time.monotonic()


def merged_vectors_path(table: Table, plan: Plan, name: str) -> str:
    """Return where a commit attempt of that name writes vectors that it merges with those of other writers."""
    file = f"{plan.request.token}-{plan.round}-{name}-merged-deletes.puffin"
    return table.location_provider().new_data_location(file)
