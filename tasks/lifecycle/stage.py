"""Staging of one unit: a numbered attempt runs the engine and leaves a staged record, or a failure."""

from __future__ import annotations

import logging
import secrets
import socket
import time
from functools import partial
from pathlib import Path

from celery.exceptions import SoftTimeLimitExceeded

from producer.common.errors import Corrupt, Failed, Newer, OutsideTable, Reason, Refused
from producer.common.redaction import redact
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.model.job import Failure
from producer.model.plan import Plan, Unit, UnitHeader
from producer.model.staged import Attempt, Staged
from producer.state.job_store import JobStore
from producer.storage.files import start
from producer.storage.requests import COUNTS
from tasks.job.cleanup import discard_attempt, withdraw_attempt
from tasks.job.context import JobContext
from tasks.messaging.retry_policy import MEMORY_ADVICE, TryAgain, is_storage_busy, reason_of
from tasks.operations.base import Progress
from tasks.operations.registry import OPERATIONS
from workers.runtime.errors import DataError
from workers.runtime.machine import Budget, Machine
from workers.runtime.scratch import scratch
from workers.runtime.session import NoJava

log = logging.getLogger(__name__)


class NotCounted(TryAgain):
    """An attempt ended because the object store was busy or away, and left nothing: it was none.

    Like everybody who waits for storage, the unit is tried again for ``ICEFLEET_GIVE_UP_HOURS``.
    """


def budget_of(settings: Settings, children: int = 1) -> Budget:
    """Return what each of ``children`` that share this machine may use; settings override what the machine has.

    Raises:
        Refused: More memory is asked for than there is.
    """
    try:
        return Budget.of(
            Machine.detect(),
            cores=settings.cores,
            heap_mb=settings.heap_mb,
            memory_mb=settings.memory_mb,
            children=children,
        )
    except ValueError as error:
        raise Refused(Reason.CONFIGURATION, f"ICEFLEET_HEAP_MB, ICEFLEET_MEMORY_MB: {error}.") from error


def stage(
    context: JobContext, plan: Plan, number: int, settings: Settings, progress: Progress
) -> Staged | Failure | None:
    """Stage a unit, unless that has been done; safe to run twice, also side by side.

    Returns:
        What is staged, now or before; why the unit failed for good; None if the job has ended.

    Raises:
        TryAgain: The attempt failed, and the next one may succeed.
        OutsideTable: The records at the message's location are another job's.
    """
    store = context.store
    if not context.at_table and (objection := context.objection(plan)) is not None:
        raise OutsideTable(objection)
    reading = start(partial(store.at(plan).unit, number))
    listing = start(partial(store.at(plan).snapshot, len(plan.units)))
    if store.is_stopped():
        return None
    records = listing.result()
    if (outcome := records.outcome(number)) is not None:
        return outcome
    header = next((unit for unit in plan.units if unit.number == number), None)
    if header is None:
        return None
    try:
        unit = reading.result()
    except Corrupt as error:
        return _fail(store, plan, header, str(error))
    if unit is None:
        return None if store.is_closed() else _fail(store, plan, header, "the record of its files is missing")
    earlier = records.attempts(number)
    count = len(earlier)
    if count >= settings.max_attempts:
        hosts = ", ".join(sorted({attempt.host for attempt in earlier}))
        died = f"its worker died {count_text(count, 'time')}, on {hosts}: if memory ran out, {MEMORY_ADVICE}"
        return _fail(store, plan, header, records.unreadable(number) or died)
    attempt = Attempt(
        unit=number, number=count, token=secrets.token_hex(4), host=socket.gethostname(), started=time.time()
    )
    if not records.claim_attempt(attempt):  # before anything that may fail or kill this process, so that it counts
        raise TryAgain("another worker has begun the same attempt")
    try:
        return _attempt(context, plan, unit, attempt, settings, progress)
    except (DataError, Failed, NoJava) as error:
        return _fail(store, plan, header, str(error))
    except (Newer, NotCounted):
        raise
    except SoftTimeLimitExceeded:
        return _fail(store, plan, header, f"it took longer than ICEFLEET_UNIT_SECONDS={settings.unit_seconds}")
    except Exception as error:
        log.warning("unit %s of %s, attempt %s: %s", number, plan.request.job, attempt.number, error)
        if attempt.number + 1 >= settings.max_attempts:
            return _fail(store, plan, header, reason_of(error))
        raise TryAgain(reason_of(error)) from error


def _attempt(
    context: JobContext, plan: Plan, unit: Unit, attempt: Attempt, settings: Settings, progress: Progress
) -> Staged | None:
    started, claim = time.perf_counter(), attempt
    records = context.store.at(plan)
    root = Path(settings.scratch_dir) if settings.scratch_dir else None
    try:
        executor = OPERATIONS[plan.request.operation].executor(context, plan, unit, attempt, budget_of(settings))
        if outside := [path for path in executor.claim.paths if not context.locations.contain(path)]:
            raise OutsideTable(f"{outside[0]} lies outside of the table's locations: it is not written.")
        records.update_attempt(executor.claim)
        claim = executor.claim
        with scratch(root) as folder, COUNTS.shared(folder):
            staged = executor.run(root, folder, progress)
        if records.is_taken_over(attempt):  # the clean-up knows only the files of the other one
            raise TryAgain("another worker has begun the same attempt")
    except BaseException as error:
        discard_attempt(context, claim)
        if is_storage_busy(error) and not records.is_taken_over(attempt):
            records.retract(attempt, forget=True)
            raise NotCounted(reason_of(error)) from error
        raise
    staged = staged.model_copy(update={"seconds": round(time.perf_counter() - started, 3)})
    # From here on a committer may see the record: even an error while it is written must delete nothing.
    records.write_staged(staged)
    if context.store.is_closed():  # while this attempt was busy
        withdraw_attempt(context, plan, claim, staged)
        return None
    return staged


def fail_unit(context: JobContext, plan: Plan, number: int, reason: str) -> Failure | None:
    """End a unit as failed; return None if it or its job has ended, or the plan has no such unit."""
    records = context.store.at(plan)
    header = next((unit for unit in plan.units if unit.number == number), None)
    if header is None or context.store.is_stopped() or records.outcome(number) is not None:
        return None
    return _fail(context.store, plan, header, reason)


def _fail(store: JobStore, plan: Plan, unit: UnitHeader, reason: str) -> Failure:
    failure = Failure(unit=unit.number, partition=unit.label, reason=redact(reason))
    store.at(plan).write_failed(failure)
    if store.is_closed():  # its records are deleted, or about to be
        store.at(plan).retract_failed(failure)
    return failure
