"""The rounds of a job: plan one, commit what it staged, plan again what conflicted.

The functions know nothing of Celery. Each takes a job one step on, can be called twice, and returns what comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from producer.common.errors import Conflict, Corrupt, IcefleetError, Reason, Refused
from producer.common.settings import Settings
from producer.common.sizes import count_text
from producer.iceberg.catalog import open_table
from producer.model.job import Failure, Report, Request, Status
from producer.model.plan import Plan
from producer.model.staged import Staged
from producer.planning.planner import plan as plan_table
from producer.planning.units import PlanWithUnits
from producer.state.commit_history import report_from_history
from producer.state.round_store import refusal
from tasks.job.branch_head import round_snapshot
from tasks.job.context import JobContext
from tasks.lifecycle.commit import CommitStateUnknown, JobCancelled, JobClosed, commit
from tasks.lifecycle.ending import close_job, end_job, raise_if_transient, reject_foreign_plan
from tasks.lifecycle.outcomes import Ended, Stage, Step, Waiting, conclude_report, report_of, sum_report

#: Kinds of records that tell how far a job is.
_OUTCOMES: Final = ("conclusion", "plan-", "staged-", "failed-")


def begin(request: Request, settings: Settings) -> Step:
    """Plan a job's first round, or resume a job that is planned already."""
    context: JobContext | None = None
    try:
        context = JobContext.open(request.job)
        name = context.name
        if not name.matches(request):
            reason = f"The request is for {request.table} in catalog {request.catalog!r}, and the job's id is not."
            return Ended(report_of(request, Status.REFUSED, reason=reason))
        recorded = context.snapshot(*_OUTCOMES)
        if (report := recorded.conclusion()) is not None:
            return close_job(context, report)
        if (latest := recorded.store.latest_plan()) is not None:
            return reject_foreign_plan(context, latest) or _stage(context, latest)
        if recorded.store.is_cancelled():
            report = report_of(request, Status.CANCELLED, reason="The job was cancelled in the queue.")
            return close_job(context, report)
        return _plan(context, request, settings)
    except (Refused, Corrupt) as error:
        if isinstance(error, Refused) and error.reason is Reason.NO_ANSWER:
            raise  # it may pass
        status = Status.REFUSED if isinstance(error, Refused) else Status.FAILED
        report = report_of(request, status, reason=str(error))
        if context is not None and _has_begun(context):
            return close_job(context, report)
        return Ended(report)


def _has_begun(context: JobContext) -> bool:
    """Return whether the job is recorded at its table: then there are records of it to be deleted."""
    current = context.store.current(context.name.operation)
    return current is not None and current.job == context.id


def advance(context: JobContext, settings: Settings) -> Step:
    """Commit the latest round if all of its units have ended, and return what comes next.

    Raises:
        Corrupt: A record that the job cannot go on without cannot be read.
    """
    recorded = context.snapshot(*_OUTCOMES)
    if (report := recorded.conclusion()) is not None:  # a process died during the clean-up
        return close_job(context, report)
    plan = recorded.store.latest_plan()
    if plan is None:
        context.store.load_plan(0)
        context.store.load_conclusion()
        return Ended(None)
    if (refused := reject_foreign_plan(context, plan)) is not None:
        return refused
    if recorded.store.is_cancelled() and not _has_committed(context, plan):
        return end_job(context, sum_report(plan, None, ()), plan, Status.CANCELLED, "The job was cancelled.")
    outcomes = recorded.store.at(plan).outcomes(plan.units)
    if len(outcomes) < len(plan.units):
        context.store.load_conclusion()  # if it is unreadable, a clean-up has begun and its report is lost
        return Waiting(plan)
    staged = {number: o for number, o in outcomes.items() if isinstance(o, Staged)}
    failures = tuple(o for o in outcomes.values() if isinstance(o, Failure))
    for unit in plan.units:  # workers write below the table's locations alone: no worker has written such a record
        if unit.number in staged and not all(map(context.locations.contain, staged[unit.number].paths)):
            del staged[unit.number]
            reason = "what is staged of it lies outside of the table's locations"
            failures += (Failure(unit=unit.number, partition=unit.label, reason=reason),)
    if failures and plan.request.all_or_nothing:
        reason = f"{len(failures)} of {count_text(len(plan.units), 'unit')} failed, and all or nothing was asked for; "
        reason += f"the first: {failures[0].reason}"
        return end_job(context, sum_report(plan, None, failures), plan, Status.FAILED, reason)
    return _commit(context, plan, staged, failures, settings)


def _commit(
    context: JobContext, plan: Plan, staged: Mapping[int, Staged], failures: tuple[Failure, ...], settings: Settings
) -> Step:
    last = plan.round + 1 >= settings.max_rounds
    try:
        done = commit(context, plan, staged, len(failures), settings)
    except Conflict as conflict:
        report = plan.before or report_of(plan.request, Status.COMMITTING)
        if last:
            reason = f"The table changed under the job {count_text(plan.round + 1, 'time')}: {conflict}."
            return end_job(context, report, plan, Status.FAILED, reason)
        return _plan_again(context, plan, settings, None, plan.before)
    except CommitStateUnknown:
        raise
    except IcefleetError as error:
        raise_if_transient(error)
        if isinstance(error, JobClosed):
            if (known := context.conclusion()) is not None:
                return close_job(context, known)
            if context.store.latest_plan() is None:
                return Ended(None)
        status = Status.CANCELLED if isinstance(error, JobCancelled) else Status.FAILED
        return end_job(context, sum_report(plan, None, failures), plan, status, str(error))
    report = sum_report(plan, done, failures + done.failures)
    if done.paths_to_replan and not last:
        return _plan_again(context, plan, settings, done.paths_to_replan, report)
    conflicts = tuple(replan.failure for replan in done.replans)
    report = report.model_copy(
        update={"failures": report.failures + conflicts, "failed_units": report.failed_units + len(conflicts)}
    )
    return end_job(context, report, plan, changed=done.changed)


def _has_committed(context: JobContext, plan: Plan) -> bool:
    """Return whether a cancellation comes too late."""
    try:
        return round_snapshot(context.reload(plan), plan) is not None
    except IcefleetError as error:
        raise_if_transient(error)
        return False  # no table or no branch to have committed to


def _plan(context: JobContext, request: Request, settings: Settings) -> Step:
    table = open_table(request.catalog, request.table)
    if (report := report_from_history(table.metadata, context.name, request.job)) is not None:
        return close_job(context, report)  # the message came a second time, after the job's end
    planned = plan_table(table, request, unit_bytes=settings.unit_mb << 20)
    if planned.plan.empty:
        return Ended(report_of(request, Status.NOTHING_TO_DO, reason=planned.plan.nothing))
    refused = tuple(failure for unit in planned.plan.units if (failure := refusal(unit)) is not None)
    if planned.plan.all_refused:
        more = f" (and {count_text(len(refused) - 1, 'more unit')})" if len(refused) > 1 else ""
        reason = f"Nothing that was planned can be done: {refused[0].reason}{more}"
        return Ended(conclude_report(sum_report(planned.plan, None, refused), request, Status.REFUSED, reason))
    if refused and request.all_or_nothing:
        units = count_text(len(planned.plan.units), "unit")
        reason = f"All or nothing was asked for, and {len(refused)} of {units} refused; "
        report = sum_report(planned.plan, None, refused)
        return Ended(conclude_report(report, request, Status.FAILED, f"{reason}the first: {refused[0].reason}"))
    context.store.write_current(request)
    return _write_plan(context, planned)


def _plan_again(
    context: JobContext, plan: Plan, settings: Settings, only: frozenset[str] | None, before: Report | None
) -> Step:
    """Plan another round on the current head; ``only`` are the paths of what is left to do."""
    report = before or report_of(plan.request, Status.COMMITTING)
    try:
        table = context.reload(plan)
        planned = plan_table(
            table, plan.request, unit_bytes=settings.unit_mb << 20, round_=plan.round + 1, only=only, before=before
        )
    except IcefleetError as error:
        raise_if_transient(error)
        status = Status.PARTIAL if report.snapshot_id is not None else Status.FAILED
        return end_job(context, report, plan, status, str(error))
    if planned.plan.empty:
        return end_job(context, report, plan)
    return _write_plan(context, planned)


def _write_plan(context: JobContext, planned: PlanWithUnits) -> Stage:
    plan = context.store.write_plan(planned.plan, planned.units)
    if plan.token != planned.plan.token:  # another process has planned the round
        return _stage(context, plan)
    return Stage(plan, tuple(unit.number for unit in plan.units if unit.refused is None))


def _stage(context: JobContext, plan: Plan) -> Stage:
    return Stage(plan, tuple(sorted(context.store.at(plan).pending(plan.units))))
