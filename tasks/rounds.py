"""The way of a job from plan to report: plan a round, commit what it staged, plan again what conflicted, clean up.

The functions know nothing of Celery. Each takes a job one step on, can be called twice, and says what comes next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from producer.catalog import open_table
from producer.errors import Conflict, Corrupt, Elsewhere, IcefleetError, Newer, Reason, Refused
from producer.history import report_from_history
from producer.messages import Failure, Report, Request, Status
from producer.planner import plan as plan_table
from producer.plans import Plan
from producer.roundstore import refusal
from producer.settings import Settings
from producer.staging import Staged
from producer.store import JobStore
from tasks.cleanup import clean_up
from tasks.commit import Unanswered, commit
from tasks.head import committed
from tasks.inflight import may_happen
from tasks.job import JobContext
from tasks.reports import concluded, report_of, summed


@dataclass(frozen=True)
class Stage:
    """Units are to be staged; then :func:`advance` goes on."""

    plan: Plan
    units: tuple[int, ...]


@dataclass(frozen=True)
class Waiting:
    """Units are still being staged by somebody, or somebody is committing them."""

    plan: Plan


@dataclass(frozen=True)
class Ended:
    """The job has ended, and nothing of it is left but what was committed.

    Attributes:
        report: None when it had ended before.
        store: Keeps the conclusion until it is told to forget it, so that no report is lost; None where there is none.
    """

    report: Report | None
    store: JobStore | None = None


Step = Stage | Waiting | Ended


def begin(request: Request, settings: Settings) -> Step:
    """Plan a job's first round, or take up a job that has been planned before."""
    try:
        context = JobContext.open(request.job)
        name = context.name
        if (request.operation, request.catalog, request.table) != name.about:
            reason = f"The request is for {request.table} in catalog {request.catalog!r}, and the job's id is not."
            return Ended(report_of(request, Status.REFUSED, reason=reason))
        if (report := context.conclusion()) is not None:
            return _leave(context, report)
        if (latest := context.store.latest_plan()) is not None:
            return _refuse(context, latest) or _stage(context, latest)
        if context.store.cancelled():
            return _leave(context, report_of(request, Status.CANCELLED, reason="The job was cancelled in the queue."))
        return _plan(context, request, settings)
    except (Refused, Corrupt) as error:
        if isinstance(error, Refused) and error.reason is Reason.NO_ANSWER:
            raise  # it may pass
        status = Status.REFUSED if isinstance(error, Refused) else Status.FAILED
        return Ended(report_of(request, status, reason=str(error)))


def give_up(request: Request, reason: str) -> Ended:
    """End a job that cannot be planned, and delete what was begun of it."""
    return _leave(JobContext.open(request.job), report_of(request, Status.FAILED, reason=reason))


def clear_away(context: JobContext, report: Report) -> Ended | Waiting:
    """Delete what is left of a job that has ended as its report says, where anything is."""
    store, operation = context.store, context.name.operation
    current = store.current(operation)
    if store.latest_plan() is None and not store.concluded() and (current is None or current.job != context.id):
        return Ended(None)
    return _leave_unless_committed(context, report)


def fail(context: JobContext, reason: str) -> Ended | Waiting:
    """End a job that cannot be brought to its end since a record of it is wrong; what it has committed stays."""
    store = context.store
    plan, request = store.latest_plan(), asked(context)
    report, status = report_of(request, Status.FAILED, reason=reason), Status.FAILED
    if (told := _history(context)) is not None:
        report, status = told.model_copy(update={"status": Status.PARTIAL, "reason": reason}), Status.PARTIAL
    return _leave(context, report) if plan is None else _end(context, report, plan, status, reason)


def asked(context: JobContext, others: Callable[[], Iterable[Request]] = tuple) -> Request:
    """What was asked for, as its records or else others tell; a job's id alone tells of its table."""
    name, plan = context.name, context.store.latest_plan()
    if plan is not None:
        return context.request(plan)
    current = context.store.current(name.operation)
    for known in (current,) if current is not None and current.job == context.id else others():
        if (known.job, known.operation, known.catalog, known.table) == (context.id, *name.about):
            return known
    return context.request_by_name


def _history(context: JobContext) -> Report | None:
    """What the table says that the job has committed."""
    try:
        table = open_table(context.name.catalog, context.name.table)
    except IcefleetError as error:
        _raise_if_it_may_pass(error)
        return None
    return report_from_history(table.metadata, context.name, context.id)


def advance(context: JobContext, settings: Settings) -> Step:
    """Commit the latest round if all of its units have ended, and say what comes next.

    Raises:
        Corrupt: a record cannot be read without which the job does not go on.
    """
    if (report := context.conclusion()) is not None:  # whoever cleaned up died while he did
        return _leave(context, report)
    plan = context.store.latest_plan()
    if plan is None:
        context.store.load_plan(0)
        context.store.load_conclusion()
        return Ended(None)
    if (refused := _refuse(context, plan)) is not None:
        return refused
    if context.store.cancelled() and not _has_committed(context, plan):
        return _end(context, summed(plan, None, ()), plan, Status.CANCELLED, "The job was cancelled.")
    outcomes = context.store.at(plan).outcomes(plan.units)
    if len(outcomes) < len(plan.units):
        context.store.load_conclusion()  # then it is a clean-up that has begun, and nobody knows of which end
        return Waiting(plan)
    ended = outcomes.items()
    staged = {number: o for number, o in ended if isinstance(o, Staged) and _at_home(context, o)}
    astray = tuple(_astray(plan, o) for number, o in ended if isinstance(o, Staged) and number not in staged)
    failures = (*(o for o in outcomes.values() if isinstance(o, Failure)), *astray)
    if failures and plan.request.all_or_nothing:
        reason = f"{len(failures)} of {len(plan.units)} units failed, and all or nothing was asked for; the first: "
        return _end(context, summed(plan, None, failures), plan, Status.FAILED, reason + failures[0].reason)
    return _commit(context, plan, staged, failures, settings)


def _refuse(context: JobContext, plan: Plan) -> Ended | None:
    """End a job whose plan was not made for it; None where it was.

    Where the table's own place is another one, or gone, the message alone says where the records lie: they may be
    those of another job.
    """
    if (objection := context.objection(plan)) is None:
        return None
    if not context.known:
        raise Elsewhere(objection)
    return _leave(context, report_of(context.request(plan), Status.FAILED, reason=objection))


def _at_home(context: JobContext, staged: Staged) -> bool:
    return all(context.places.hold(path) for path in staged.paths)


def _astray(plan: Plan, staged: Staged) -> Failure:
    """A record that no worker has written: workers write below the table's locations alone."""
    label = next((unit.label for unit in plan.units if unit.number == staged.unit), "")
    return Failure(
        unit=staged.unit, partition=label, reason="what is staged of it lies outside of the table's locations"
    )


def _commit(
    context: JobContext, plan: Plan, staged: Mapping[int, Staged], failures: tuple[Failure, ...], settings: Settings
) -> Step:
    last = plan.round + 1 >= settings.max_rounds
    try:
        done = commit(context, plan, staged, len(failures), settings)
    except Conflict as conflict:
        report = plan.before or report_of(plan.request, Status.COMMITTING)
        if last:
            reason = f"The table changed under the job {plan.round + 1} times: {conflict}."
            return _end(context, report, plan, Status.FAILED, reason)
        return _plan_again(context, plan, settings, None, plan.before)
    except Unanswered:
        raise
    except IcefleetError as error:
        _raise_if_it_may_pass(error)
        status = Status.CANCELLED if context.store.cancelled() else Status.FAILED
        return _end(context, summed(plan, None, failures), plan, status, str(error))
    report = summed(plan, done, failures + done.failures)
    if done.again and not last:
        return _plan_again(context, plan, settings, done.again, report)
    conflicts = tuple(setback.failure for setback in done.setbacks)
    report = report.model_copy(
        update={"failures": report.failures + conflicts, "failed_units": report.failed_units + len(conflicts)}
    )
    return _end(context, report, plan, changed=done.snapshot is not None)


def _has_committed(context: JobContext, plan: Plan) -> bool:
    """Whether the cancellation came too late."""
    try:
        return committed(context.reload(plan), plan) is not None
    except IcefleetError as error:
        _raise_if_it_may_pass(error)
        return False  # no table or no branch to have committed to


def _raise_if_it_may_pass(error: IcefleetError) -> None:
    """A catalog that is away, access that is denied for now, or a record for others ends no job: all stays staged."""
    if isinstance(error, Newer) or (isinstance(error, Refused) and error.reason in (Reason.NO_ANSWER, Reason.DENIED)):
        raise error


def _plan(context: JobContext, request: Request, settings: Settings) -> Step:
    table = open_table(request.catalog, request.table)
    if (report := report_from_history(table.metadata, context.name, request.job)) is not None:
        return _leave(context, report)  # the message came a second time, after the job's end
    planned = plan_table(table, request, unit_bytes=settings.unit_mb << 20)
    if planned.plan.empty:
        return Ended(report_of(request, Status.NOTHING_TO_DO, reason=planned.plan.nothing))
    refused = tuple(failure for unit in planned.plan.units if (failure := refusal(unit)) is not None)
    if refused and request.all_or_nothing:
        reason = f"All or nothing was asked for, and {len(refused)} of {len(planned.plan.units)} units are refused; "
        report = summed(planned.plan, None, refused)
        return Ended(concluded(report, request, Status.FAILED, f"{reason}the first: {refused[0].reason}"))
    context.store.write_current(request)
    return _stage(context, context.store.write_plan(planned.plan, planned.units))


def _plan_again(
    context: JobContext, plan: Plan, settings: Settings, only: frozenset[str] | None, before: Report | None
) -> Step:
    """Plan another round on the head as it is now; ``only`` are paths of what is left to do."""
    try:
        table = context.reload(plan)
        planned = plan_table(
            table, plan.request, unit_bytes=settings.unit_mb << 20, round_=plan.round + 1, only=only, before=before
        )
    except IcefleetError as error:
        _raise_if_it_may_pass(error)
        report = before or report_of(plan.request, Status.COMMITTING)
        status = Status.PARTIAL if report.snapshot_id is not None else Status.FAILED
        return _end(context, report, plan, status, str(error))
    if planned.plan.empty:
        report = before or report_of(plan.request, Status.COMMITTING)
        return _end(context, report, plan)
    return _stage(context, context.store.write_plan(planned.plan, planned.units))


def _stage(context: JobContext, plan: Plan) -> Stage:
    return Stage(plan, tuple(sorted(context.store.at(plan).pending(plan.units))))


def _end(
    context: JobContext,
    report: Report,
    plan: Plan,
    status: Status | None = None,
    reason: str | None = None,
    *,
    changed: bool = False,
) -> Ended | Waiting:
    report = concluded(report, plan.request, status, reason)
    return _leave(context, report) if changed else _leave_unless_committed(context, report)


def _leave_unless_committed(context: JobContext, report: Report) -> Ended | Waiting:
    """Leave a table that the job has not changed, as far as is known.

    Another committer may be about to commit what a clean-up would delete.
    """
    context.store.close()
    plan = context.store.latest_plan()
    if plan is not None and may_happen(context, plan):
        return Waiting(plan)
    return _leave(context, report)


def _leave(context: JobContext, report: Report) -> Ended:
    context.store.conclude(report)
    if left := clean_up(context):
        told = f"{report.reason} " if report.reason else ""
        reason = f"{told}Files of it may be left for the table's orphan clean-up: {left[0]}"
        report = report.model_copy(update={"reason": reason})
        context.store.conclude(report)
    return Ended(report, context.store)
