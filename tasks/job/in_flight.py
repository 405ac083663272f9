"""Commits that are on their way: noted before anything is written for them, until their fate is known.

Without the note nobody could tell the files of a commit that died from those of one that is about to happen.
"""

from __future__ import annotations

import secrets
import time
import uuid
from dataclasses import dataclass

from producer.common.errors import IcefleetError
from producer.model.plan import Plan
from producer.model.staged import CommitNote
from producer.planning.planner import branch_head
from producer.state.job_store import JobStore
from producer.state.round_store import RoundStore
from tasks.job.context import JobContext

#: Seconds after which a commit that was noted does not happen any more: nobody sends one that was noted longer ago.
LONGEST = 300.0


@dataclass
class InFlight:
    """One committer's note at a round of a job."""

    store: JobStore
    records: RoundStore
    number: int
    note: CommitNote

    @classmethod
    def begin(cls, store: JobStore, plan: Plan) -> InFlight:
        """Note that a commit begins."""
        note = CommitNote(token=secrets.token_hex(8), started=time.time())
        records = store.at(plan)
        return cls(store, records, records.claim_commit(note), note)

    def attempt(self, snapshot_id: int, head: int) -> str:
        """Note that another attempt begins, on a head; returns the name that its files are to carry."""
        name = str(uuid.uuid4())
        self._note(started=time.time(), head=head, snapshots=self.note.snapshots | {name: snapshot_id})
        return name

    @property
    def fresh(self) -> bool:
        """Whether the attempt was noted so lately that others reckon with it for a good while."""
        return time.time() - self.note.started < LONGEST / 2

    def discarded(self, name: str) -> None:
        """Note that nothing is left of an attempt."""
        self._note(snapshots={known: id_ for known, id_ in self.note.snapshots.items() if known != name})

    def abandoned(self) -> None:
        """Note that the commit does not happen, and that files of it may be left."""
        self._note(settled=True)

    def settled(self, *, happened: bool) -> None:
        """Note that all is known: the commit has happened, or it never will."""
        self._note(settled=True, happened=happened, snapshots={})
        if self.store.ended():  # meanwhile: nobody would delete the note
            self.records.forget_commit(self.number)

    def _note(self, **changes: object) -> None:
        self.note = self.note.model_copy(update=changes)
        self.records.note_commit(self.number, self.note)


def may_happen(context: JobContext, plan: Plan) -> bool:
    """Whether some committer may be about to commit a round.

    One that was noted on a head that the branch has left will fail, and one that was noted long ago is dead.
    """
    now = time.time()
    notes = context.store.at(plan).commits()
    pending = [note for note in notes if not note.settled and abs(now - note.started) < LONGEST]
    if not pending:
        return False
    try:
        head = branch_head(context.reload(plan), plan.request.branch)
    except IcefleetError:
        return True
    return head is not None and any(note.head == head.snapshot_id for note in pending)
