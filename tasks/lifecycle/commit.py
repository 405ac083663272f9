"""The commit of one round: what is staged becomes one snapshot, checked against the head at every attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from producer.common.errors import Conflict, Failed, IcefleetError
from producer.common.gc_pause import uncollected
from producer.common.settings import Settings
from producer.iceberg.manifest_reader import KnownManifests
from producer.iceberg.pending_snapshot import PreparedSnapshot
from producer.iceberg.snapshot_producer import SnapshotUpdate
from producer.iceberg.unmodelled_metadata import refuse_what_would_be_lost
from producer.model import job as messages
from producer.model.job import Failure
from producer.model.plan import Plan
from producer.model.staged import Staged
from producer.state.commit_history import FAILED_UNITS, JOB, OPERATION, ROUND, UNITS
from producer.state.records import delete_files
from tasks.job.branch_head import Head, committed
from tasks.job.context import JobContext
from tasks.job.in_flight import InFlight
from tasks.operations.base import Additions, Change, Rules, Setback
from tasks.operations.compact.commit import CompactionRules
from tasks.operations.convert.commit import ConversionRules

log = logging.getLogger(__name__)

#: Seconds after which the history is asked whether a commit without an answer has happened.
_ANSWERS = (0.0, 0.5, 2.0)


class Unanswered(IcefleetError):
    """The catalog does not say whether the snapshot was committed; nothing was deleted, `icefleet resume` goes on.

    Attributes:
        error: What it raised instead of an answer.
    """

    error: BaseException | None = None


@dataclass(frozen=True)
class Committed:
    """What a round has changed; all counts are those of the snapshot's summary."""

    snapshot: Snapshot | None
    setbacks: tuple[Setback, ...] = ()
    #: Units whose staged work was not fit to be committed.
    failures: tuple[Failure, ...] = ()

    @property
    def again(self) -> frozenset[str]:
        """Paths of what must be planned again."""
        return frozenset(path for setback in self.setbacks for path in setback.paths)


@dataclass
class _Attempts:
    """The attempts at one commit: where they are noted, and those that cannot tell their fate, with their files."""

    context: JobContext
    plan: Plan
    rules: Rules
    failed: int
    flight: InFlight | None = None
    doubtful: list[tuple[PreparedSnapshot, Additions]] = field(default_factory=list)
    #: What was read, so that an attempt after a lost race is faster than the writer that won it.
    known: KnownManifests = field(default_factory=dict)

    def begin(self) -> InFlight:
        """Note that an attempt begins."""
        self.flight = self.flight or InFlight.begin(self.context.store, self.plan)
        return self.flight

    def settle(self, *, happened: bool = False) -> None:
        """Note that nothing is in doubt any more, if that is so."""
        if self.flight is not None and not self.doubtful:
            self.flight.settled(happened=happened)

    def abandon(self) -> None:
        """Note that the attempt does not go on, if nothing is in doubt; the clean-up looks for what it wrote."""
        if self.flight is not None and not self.doubtful:
            self.flight.abandoned()

    def discard(self, prepared: PreparedSnapshot, additions: Additions) -> None:
        """Delete what was written for an attempt that has definitely not happened."""
        prepared.discard()
        delete_files(self.context.store.io, additions.written)


@uncollected()
def commit(context: JobContext, plan: Plan, staged: Mapping[int, Staged], failed: int, settings: Settings) -> Committed:
    """Commit what is staged, as one snapshot or none; safe to run twice, also side by side.

    A commit that loses the race for the head is built again from the same staged files. One whose answer is lost is
    looked for in the table's history before anything else.

    Args:
        context: The job.
        plan: The round.
        staged: The units that are staged, by number.
        failed: How many units failed; for the summary.
        settings: For the number of attempts.

    Raises:
        Conflict: the plan as a whole no longer fits the branch.
        Failed: the table is gone, or all attempts lost.
        Unanswered: see there.
    """
    attempts = _Attempts(context, plan, _rules(context, plan, staged), failed)
    retrying = Retrying(
        stop=stop_after_attempt(settings.commit_attempts),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        retry=retry_if_exception_type((CommitFailedException, NoSuchTableError, Unanswered)),
    )
    try:
        done: Committed = retrying(_attempt, attempts)
    except RetryError as error:
        last = error.last_attempt.exception()
        if isinstance(last, Unanswered) or attempts.doubtful:
            unanswered = Unanswered(f"The catalog gave no answer to the commit of {plan.request.job}: {last}")
            unanswered.error = last.error if isinstance(last, Unanswered) else last
            raise unanswered from error
        attempts.settle()
        raise Failed(
            f"Other writers were faster {settings.commit_attempts} times: nothing was committed; try again when the "
            "table is quieter, or raise ICEFLEET_COMMIT_ATTEMPTS."
        ) from error
    except IcefleetError:
        attempts.settle()
        raise
    except Exception:  # not of a swap, whose errors are in doubt: nothing of this attempt was sent
        attempts.abandon()
        raise
    for prepared, additions in attempts.doubtful:  # the head has moved on without them: they can't happen any more
        if done.snapshot is None or prepared.snapshot.snapshot_id != done.snapshot.snapshot_id:
            attempts.discard(prepared, additions)
    attempts.doubtful.clear()
    attempts.settle(happened=done.snapshot is not None)
    return done


def _rules(context: JobContext, plan: Plan, staged: Mapping[int, Staged]) -> Rules:
    if plan.request.operation is messages.Operation.COMPACT:
        return CompactionRules(plan, staged)
    return ConversionRules(plan, staged, context.store.at(plan).unit)


def _attempt(attempts: _Attempts) -> Committed:
    context, plan = attempts.context, attempts.plan
    table = context.reload(plan)
    if (snapshot := committed(table, plan)) is not None:
        return Committed(snapshot, attempts.rules.left_behind(table))
    head = Head.of(table, plan, attempts.known)
    change = attempts.rules.change(table, head)
    if plan.request.all_or_nothing:
        _all(change)
    if change.empty:
        return Committed(None, change.setbacks, change.failures)
    refuse_what_would_be_lost(table)
    flight = attempts.begin()
    name = flight.attempt(snapshot_id := table.metadata.new_snapshot_id(), head.snapshot.snapshot_id)
    # Looked at after the note: whoever ends the job looks for notes after he has said so, and one sees the other.
    if context.store.cancelled():
        raise Failed("The job was cancelled: nothing was committed.")
    if context.store.ended():
        raise CommitFailedException("another committer is ending the job")
    additions = change.additions(table, name)
    prepared = _prepare(attempts, table, change, additions, snapshot_id, name)
    if not flight.fresh:
        attempts.discard(prepared, additions)
        raise CommitFailedException("preparing it took so long that nobody reckons with it any more")
    try:
        return Committed(prepared.commit(), change.setbacks, change.failures)
    except (CommitFailedException, NoSuchTableError):
        attempts.discard(prepared, additions)
        flight.discarded(name)
        raise
    except Exception as error:
        log.warning("no answer to the commit of %s: %s", plan.request.job, error)
        attempts.doubtful.append((prepared, additions))
        return _look_for(attempts, error)


def _all(change: Change) -> None:
    """All or nothing was asked for: see whether it is all."""
    if change.failures:
        raise Failed(f"Not all units can be committed, and all or nothing was asked for: {change.failures[0].reason}")
    if change.setbacks:
        raise Conflict("concurrent commits reached into its partitions")


def _look_for(attempts: _Attempts, error: Exception) -> Committed:
    for seconds in _ANSWERS:
        time.sleep(seconds)
        try:
            table = attempts.context.reload(attempts.plan)
            snapshot = committed(table, attempts.plan)
        except IcefleetError:
            raise
        except Exception as again:  # the catalog is still away
            log.warning("the catalog does not answer: %s", again)
            continue
        if snapshot is not None:
            return Committed(snapshot, attempts.rules.left_behind(table))
    unanswered = Unanswered(f"{type(error).__name__}: {error}")
    unanswered.error = error
    raise unanswered from error


def _prepare(
    attempts: _Attempts, table: Table, change: Change, additions: Additions, snapshot_id: int, name: str
) -> PreparedSnapshot:
    plan = attempts.plan
    update = SnapshotUpdate(
        table,
        plan.request.branch,
        operation=change.operation,
        properties={
            JOB: plan.request.job,
            ROUND: str(plan.round),
            OPERATION: plan.request.operation,
            UNITS: str(len(plan.units)),
            FAILED_UNITS: str(attempts.failed + len(change.failures)),
        },
        snapshot_id=snapshot_id,
        name=name,
        known=attempts.known,
    )
    update.add(additions.files)
    update.remove(change.removed)
    return update.prepare()
