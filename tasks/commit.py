"""The commit of one round: what is staged becomes one snapshot, checked against the head at every attempt."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.typedef import Record
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from producer.errors import Conflict, Failed, IcefleetError
from producer.history import FAILED_UNITS, JOB, OPERATION, ROUND, UNITS
from producer.manifests import FILE_PATH_ID, KnownManifests
from producer.partitions import decode_partition, partition_type
from producer.planner import branch_head
from producer.plans import Plan, Scope
from producer.settings import Settings
from producer.staging import Staged, StagedDeleteFile, StagedVector
from producer.store import delete_files
from tasks.cleanup import merged_path
from tasks.decision import Decision, Merge, decide
from tasks.entries import NewFile, new_data_file
from tasks.head import Head, committed
from tasks.inflight import InFlight
from tasks.job import JobContext
from tasks.prepared import PreparedSnapshot
from tasks.snapshot import SnapshotUpdate
from workers.position_deletes import POS_ID
from workers.puffin import PuffinWriter, read_vector
from workers.unit import VectorRef

log = logging.getLogger(__name__)

#: Seconds after which the history is asked whether a commit without an answer has happened.
_ANSWERS = (0.0, 0.5, 2.0)


class Unanswered(IcefleetError):
    """The catalog does not say whether the snapshot was committed; nothing was deleted, `icefleet resume` goes on."""


@dataclass(frozen=True)
class Committed:
    """What a round has changed; all counts are those of the snapshot's summary."""

    snapshot: Snapshot | None
    #: Equality deletes whose scope must be planned again.
    again: frozenset[str] = frozenset()


@dataclass
class _Attempts:
    """The attempts at one commit: where they are noted, and those that cannot tell their fate, with their vectors."""

    flight: InFlight | None = None
    doubtful: list[tuple[PreparedSnapshot, list[str]]] = field(default_factory=list)
    #: What was read, so that an attempt after a lost race is faster than the writer that won it.
    known: KnownManifests = field(default_factory=dict)

    def begin(self, context: JobContext, plan: Plan) -> InFlight:
        """Note that an attempt begins."""
        self.flight = self.flight or InFlight.begin(context.store, plan.round)
        return self.flight

    def settle(self, *, happened: bool = False) -> None:
        """Note that nothing is in doubt any more, if that is so."""
        if self.flight is not None and not self.doubtful:
            self.flight.settled(happened=happened)


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
    attempts = _Attempts()
    retrying = Retrying(
        stop=stop_after_attempt(settings.commit_attempts),
        wait=wait_random_exponential(multiplier=0.1, max=10),
        retry=retry_if_exception_type((CommitFailedException, NoSuchTableError, Unanswered)),
    )
    try:
        done: Committed = retrying(_attempt, context, plan, staged, failed, attempts)
    except RetryError as error:
        last = error.last_attempt.exception()
        if isinstance(last, Unanswered) or attempts.doubtful:
            raise Unanswered(f"The catalog gave no answer to the commit of {plan.request.job}: {last}") from error
        attempts.settle()
        raise Failed(
            f"Other writers were faster {settings.commit_attempts} times: nothing was committed; try again when the "
            "table is quieter, or raise ICEFLEET_COMMIT_ATTEMPTS."
        ) from error
    except IcefleetError:
        attempts.settle()
        raise
    for prepared, merged in attempts.doubtful:  # the head has moved on without them: they can't be committed any more
        if done.snapshot is None or prepared.snapshot.snapshot_id != done.snapshot.snapshot_id:
            prepared.discard()
            delete_files(context.store.io, merged)
    attempts.doubtful.clear()
    attempts.settle(happened=done.snapshot is not None)
    return done


def _attempt(
    context: JobContext, plan: Plan, staged: Mapping[int, Staged], failed: int, attempts: _Attempts
) -> Committed:
    table = context.reload(plan)
    if (snapshot := committed(table, plan)) is not None:
        return Committed(snapshot, _left_behind(table, plan, staged))
    head = Head.of(table, plan, attempts.known)
    decision = decide(plan, staged, head)
    if plan.request.all_or_nothing and decision.again:
        raise Conflict("concurrent commits reached into its partitions")
    if decision.empty:
        return Committed(None, decision.again)
    flight = attempts.begin(context, plan)
    name = flight.attempt(snapshot_id := table.metadata.new_snapshot_id(), head.snapshot.snapshot_id)
    # Looked at after the note: whoever ends the job looks for notes after he has said so, and one sees the other.
    if context.store.cancelled():
        raise Failed("The job was cancelled: nothing was committed.")
    if context.store.ended():
        raise CommitFailedException("another committer is ending the job")
    merged, paths = _merge(table, plan, decision, name)
    prepared = _prepare(table, plan, staged, failed, decision, merged, snapshot_id, name, attempts.known)
    if not flight.fresh:
        prepared.discard()
        delete_files(table.io, paths)
        raise CommitFailedException("preparing it took so long that nobody reckons with it any more")
    try:
        return Committed(prepared.commit(), decision.again)
    except (CommitFailedException, NoSuchTableError):
        prepared.discard()
        delete_files(table.io, paths)
        flight.discarded(name)
        raise
    except Exception as error:
        log.warning("no answer to the commit of %s: %s", plan.request.job, error)
        attempts.doubtful.append((prepared, paths))
        return _look_for(context, plan, staged, error)


def _look_for(context: JobContext, plan: Plan, staged: Mapping[int, Staged], error: Exception) -> Committed:
    for seconds in _ANSWERS:
        time.sleep(seconds)
        try:
            table = context.reload(plan)
            snapshot = committed(table, plan)
        except IcefleetError:
            raise
        except Exception as again:  # the catalog is still away
            log.warning("the catalog does not answer: %s", again)
            continue
        if snapshot is not None:
            return Committed(snapshot, _left_behind(table, plan, staged))
    raise Unanswered(f"{type(error).__name__}: {error}") from error


def _left_behind(table: Table, plan: Plan, staged: Mapping[int, Staged]) -> frozenset[str]:
    """Equality deletes that a finished commit could have retired and did not, since their scope had changed."""
    snapshot = branch_head(table, plan.request.branch)
    # Whatever has become of the table since: the commit has happened.
    live = Head(table.io, plan, snapshot, snapshot).equality_deletes if snapshot is not None else {}
    return frozenset(
        r.path for r in plan.retirements if r.complete and staged.keys() >= set(r.units) and r.path in live
    )


def _prepare(
    table: Table,
    plan: Plan,
    staged: Mapping[int, Staged],
    failed: int,
    decision: Decision,
    merged: list[NewFile],
    snapshot_id: int,
    name: str,
    known: KnownManifests,
) -> PreparedSnapshot:
    update = SnapshotUpdate(
        table,
        plan.request.branch,
        # Never `replace`: other engines' compactions look for new deletes in `delete` and `overwrite` snapshots only.
        operation=Operation.DELETE if decision.adds else Operation.OVERWRITE,
        properties={
            JOB: plan.request.job,
            ROUND: str(plan.round),
            OPERATION: plan.request.operation,
            UNITS: str(len(plan.units)),
            FAILED_UNITS: str(failed),
        },
        snapshot_id=snapshot_id,
        name=name,
        known=known,
    )
    update.add(_position_delete(table, plan, unit, delete) for unit, delete in decision.deletes)
    update.add(_vector(table, unit, vector) for unit, vector in decision.vectors)
    update.add(merged)
    update.remove(decision.retired)
    update.remove(decision.superseded)
    return update.prepare()


def _merge(table: Table, plan: Plan, decision: Decision, name: str) -> tuple[list[NewFile], list[str]]:
    """Write the unions of staged vectors with those that were committed meanwhile, into one Puffin file."""
    if not decision.merges:
        return [], []
    path = merged_path(table, plan, name)
    written: list[tuple[Staged, Merge, int, int, int]] = []
    writer = PuffinWriter(table.io, path)
    with writer:
        for unit, merge in decision.merges:
            target = merge.staged.target
            staged = VectorRef(
                merge.staged.path, merge.staged.offset, merge.staged.content_size, merge.staged.cardinality
            )
            vector = read_vector(table.io, staged, target).union(
                read_vector(table.io, VectorRef(**merge.live.model_dump()), target)
            )
            written.append((unit, merge, *writer.add_vector(target, vector), vector.cardinality))
        size = writer.close()
    return [
        _vector(
            table,
            unit,
            merge.staged.model_copy(
                update={
                    "path": path,
                    "size": size,
                    "offset": offset,
                    "content_size": content_size,
                    "cardinality": cardinality,
                }
            ),
        )
        for unit, merge, offset, content_size, cardinality in written
    ], [path]


def _position_delete(table: Table, plan: Plan, unit: Staged, delete: StagedDeleteFile) -> NewFile:
    scope = unit.scopes[delete.scope]
    return NewFile(
        new_data_file(
            content=DataFileContent.POSITION_DELETES,
            file_path=delete.path,
            file_format=FileFormat.PARQUET,
            partition=_partition(table, scope),
            record_count=delete.records,
            file_size_in_bytes=delete.size,
            column_sizes=delete.column_sizes,
            value_counts={FILE_PATH_ID: delete.records, POS_ID: delete.records},
            null_value_counts={FILE_PATH_ID: 0, POS_ID: 0},
            # In full: a truncated path would make a delete of one file one of a whole partition.
            lower_bounds={FILE_PATH_ID: delete.lower[0].encode(), POS_ID: _long(delete.lower[1])},
            upper_bounds={FILE_PATH_ID: delete.upper[0].encode(), POS_ID: _long(delete.upper[1])},
            split_offsets=list(delete.split_offsets),
            referenced_data_file=delete.targets[0] if len(delete.targets) == 1 else None,
        ),
        scope.spec_id,
    )


def _vector(table: Table, unit: Staged, vector: StagedVector) -> NewFile:
    scope = unit.scopes[vector.scope]
    return NewFile(
        new_data_file(
            content=DataFileContent.POSITION_DELETES,
            file_path=vector.path,
            file_format=FileFormat.PUFFIN,
            partition=_partition(table, scope),
            record_count=vector.cardinality,
            file_size_in_bytes=vector.size,
            referenced_data_file=vector.target,
            content_offset=vector.offset,
            content_size_in_bytes=vector.content_size,
        ),
        scope.spec_id,
    )


def _partition(table: Table, scope: Scope) -> Record:
    spec = table.metadata.specs()[scope.spec_id]
    return decode_partition(partition_type(table.metadata, spec), scope.values)


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)
