"""The commit loop of one round: what is staged is checked against the branch's head and committed at every attempt.

The loop is the same for all operations. Their rules decide on a change: a snapshot, updates of the metadata without a
snapshot, or nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from producer.common.errors import Conflict, Failed, IcefleetError, Reason, Refused
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.iceberg.manifest_reader import ManifestCache, pause_gc
from producer.iceberg.pyiceberg_metadata import check_no_metadata_is_lost
from producer.iceberg.snapshot_producer import SnapshotProducer
from producer.model.plan import Plan
from producer.model.staged import Staged
from producer.state.commit_history import FAILED_UNITS, JOB, OPERATION, ROUND, UNITS
from producer.storage.files import start
from tasks.job.branch_head import BranchHead, round_snapshot
from tasks.job.context import JobContext
from tasks.job.pending_commit import PendingCommit
from tasks.lifecycle.prepared_commit import (
    CommitResult,
    PreparedCommit,
    PreparedMetadataCommit,
    PreparedSnapshotCommit,
)
from tasks.operations.base import Change, CommitRules, MetadataChange, NoChange, SnapshotChange
from tasks.operations.registry import OPERATIONS

log = logging.getLogger(__name__)

#: Seconds after which the table is loaded again to find out whether a commit without an answer has happened.
_ANSWER_DELAYS: Final = (0.0, 0.5, 2.0)


class CommitStateUnknown(IcefleetError):
    """The catalog does not say whether the commit happened; nothing was deleted, and `icefleet resume` goes on.

    Its cause is the error that the catalog raised instead of an answer.
    """


class JobCancelled(Failed):
    """The job was cancelled before its commit."""


class JobClosed(Failed):
    """Another committer has ended the job, or is about to."""


@pause_gc()
def commit(
    context: JobContext, plan: Plan, staged: Mapping[int, Staged], failed: int, settings: Settings
) -> CommitResult:
    """Commit what is staged; safe to run twice, also side by side.

    A commit that loses the race for the head is built again from the same staged files. One whose answer is lost is
    looked for in the table before anything else. The snapshot's summary says how many units failed.

    Raises:
        Conflict: The plan as a whole no longer fits the branch.
        Failed: The table was dropped or replaced, or all attempts lost the race.
        JobCancelled, JobClosed: The job ends otherwise.
        CommitStateUnknown: The outcome is unknown.
    """
    rules = OPERATIONS[plan.request.operation].commit_rules(context, plan, staged)
    attempts = _Attempts(context, plan, rules, failed)
    retrying = Retrying(
        stop=stop_after_attempt(settings.commit_attempts),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        retry=retry_if_exception_type((CommitFailedException, NoSuchTableError, CommitStateUnknown)),
    )
    try:
        result: CommitResult = retrying(attempts.attempt)
    except RetryError as error:
        last = error.last_attempt.exception()
        if isinstance(last, CommitStateUnknown) or attempts.unanswered:
            cause = last.__cause__ if isinstance(last, CommitStateUnknown) else last
            raise CommitStateUnknown(
                f"The catalog gave no answer to the commit of {plan.request.job}: {last}"
            ) from cause
        attempts.settle()
        raise Failed(
            f"Other writers were faster {count_text(settings.commit_attempts, 'time')}: nothing was committed; try "
            "again when the table is quieter, or raise ICEFLEET_COMMIT_ATTEMPTS."
        ) from error
    except IcefleetError:
        attempts.settle()
        raise
    except Exception:  # not one of the compare-and-swap, which leaves the outcome unknown: nothing was sent
        attempts.abandon()
        raise
    attempts.conclude(result)
    return result


@dataclass
class _Attempts:
    """The attempts at one commit: their note, and those whose outcome is unknown."""

    context: JobContext
    plan: Plan
    rules: CommitRules
    failed: int
    pending: PendingCommit | None = None
    unanswered: list[PreparedCommit] = field(default_factory=list)
    #: Manifests that were read, so that an attempt after a lost race is faster than the writer that won it.
    cache: ManifestCache = field(default_factory=dict)

    def attempt(self) -> CommitResult:
        """Decide on a change of the table as it is now, and commit it."""
        table = self.context.reload(self.plan)
        if (result := self._find(table)) is not None:
            return result
        head = BranchHead.of(table, self.plan, self.cache)
        change = self.rules.change(table, head)
        if self.plan.request.all_or_nothing:
            _require_all(change)
        if isinstance(change, NoChange):
            return CommitResult.without_snapshot(change, metadata_changed=change.is_applied)
        check_no_metadata_is_lost(table)
        self.pending = self.pending or PendingCommit.of(self.context.store, self.plan)
        snapshot_id = table.metadata.new_snapshot_id() if isinstance(change, SnapshotChange) else None
        name = self.pending.begin_attempt(head.snapshot.snapshot_id, snapshot_id)
        # Checked after the note: whoever ends the job looks for notes after it has closed the job, so that one of the
        # two sees the other.
        cancelled = start(self.context.store.is_cancelled)
        closed = self.context.store.is_closed()
        if cancelled.result():
            raise JobCancelled("The job was cancelled: nothing was committed.")
        if closed:
            raise JobClosed("Another committer has ended the job: nothing was committed.")
        prepared: PreparedCommit
        if isinstance(change, MetadataChange):
            prepared = PreparedMetadataCommit(table, head, change)
        else:
            prepared = self._prepare(table, change, name, snapshot_id)
        if not self.pending.is_fresh:
            prepared.discard()
            raise CommitFailedException("preparing it took so long that other committers take it for dead")
        try:
            return prepared.commit()
        except (CommitFailedException, NoSuchTableError):
            # A gateway or a client beneath may have repeated a request that had succeeded: then this is its refusal.
            self.unanswered.append(prepared)
            if (result := self._find_now()) is not None:
                return result
            self.unanswered.remove(prepared)
            prepared.discard()
            self.pending.discard_attempt(name)
            raise
        except Exception as error:
            log.warning("no answer to the commit of %s: %s", self.plan.request.job, error)
            self.unanswered.append(prepared)
            return self._find_out(error)

    def conclude(self, result: CommitResult) -> None:
        """Note the end of the commit.

        The head has moved on without the unanswered attempts at another snapshot: they cannot happen any more.
        """
        made = result.snapshot.snapshot_id if result.snapshot is not None else None
        for prepared in self.unanswered:
            if isinstance(prepared, PreparedSnapshotCommit) and prepared.pending.snapshot.snapshot_id != made:
                prepared.discard()
        self.unanswered.clear()
        self.settle(happened=result.changed)

    def settle(self, *, happened: bool = False) -> None:
        """Note the outcome, unless that of an attempt is unknown."""
        if self.pending is not None and not self.unanswered:
            self.pending.settle(happened=happened)

    def abandon(self) -> None:
        """Note that the attempt ends, unless the outcome of one is unknown; the clean-up looks for what it wrote."""
        if self.pending is not None and not self.unanswered:
            self.pending.abandon()

    def _prepare(
        self, table: Table, change: SnapshotChange, name: str, snapshot_id: int | None
    ) -> PreparedSnapshotCommit:
        """Write the files of a snapshot; all of their names contain ``name``."""
        additions = change.additions(table, name)
        request = self.plan.request
        update = SnapshotProducer(
            table,
            request.branch,
            operation=change.operation,
            properties={
                JOB: request.job,
                ROUND: str(self.plan.round),
                OPERATION: request.operation,
                UNITS: str(len(self.plan.units)),
                FAILED_UNITS: str(self.failed + len(change.failures)),
            },
            snapshot_id=snapshot_id,
            name=name,
            cache=self.cache,
        )
        update.add(additions.files)
        update.remove(change.removed)
        update.rewrite_manifests(change.rewritten_manifests)
        deleter = replace(self.context.deleter, io=table.io).with_marker(name)
        return PreparedSnapshotCommit(change, additions, update.prepare(), deleter)

    def _find(self, table: Table) -> CommitResult | None:
        """Return the result if the round, or an unanswered attempt at it, is in the table."""
        if (snapshot := round_snapshot(table, self.plan)) is not None:
            return CommitResult(snapshot, replans=self.rules.replans_after(table))
        updates = (prepared for prepared in self.unanswered if isinstance(prepared, PreparedMetadataCommit))
        return next((found for prepared in updates if (found := prepared.find(table)) is not None), None)

    def _find_now(self) -> CommitResult | None:
        try:
            return self._find(self.context.reload(self.plan))
        except Failed:  # the table was dropped or replaced
            return None

    def _find_out(self, error: Exception) -> CommitResult:
        """Find out from the table whether the attempt that raised an error was committed."""
        for seconds in _ANSWER_DELAYS:
            time.sleep(seconds)
            try:
                result = self._find(self.context.reload(self.plan))
            except IcefleetError as again:
                if not isinstance(again, Refused) or again.reason is not Reason.NO_ANSWER:
                    raise
                log.warning("%s", again)
                continue
            except Exception as again:  # the catalog is still away
                log.warning("the catalog does not answer: %s", again)
                continue
            if result is not None:
                return result
        raise CommitStateUnknown(f"{type(error).__name__}: {error}") from error


def _require_all(change: Change) -> None:
    """Refuse a change that leaves out a part of the round, for a request of all or nothing."""
    if change.failures:
        raise Failed(f"Not all units can be committed, and all or nothing was asked for: {change.failures[0].reason}")
    if change.replans:
        raise Conflict("concurrent commits reached into its partitions")
