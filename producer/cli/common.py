"""What commands share: options, running a request, printing its end."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

import click

from producer.broker.connections import connection_error, is_of_broker
from producer.broker.registry import JobRegistry
from producer.cli import render
from producer.cli.errors import Interrupted, Unknown, print_json
from producer.common.errors import Corrupt, Failed, IcefleetError, Reason, Refused
from producer.common.redaction import redact
from producer.common.settings import Settings
from producer.fleet import Fleet
from producer.iceberg.catalog import nearest_table, open_table, storage_hint
from producer.job import Job, JobInterrupted
from producer.model.job import Report, Request, Status
from producer.planning.planner import check_request
from producer.planning.units import PlanWithUnits
from producer.storage.errors import StorageError

log = logging.getLogger(__name__)

#: Why a catalog or storage may not be read now, and may be later.
_PASSING: Final = (Reason.NO_ANSWER, Reason.DENIED)

F = TypeVar("F", bound=Callable[..., Any])

TABLE = click.argument("table")
JOB = click.argument("job")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")
CATALOG = click.option(
    "--catalog", default="default", show_default=True, help="A catalog of PyIceberg's configuration."
)
BRANCH = click.option("--branch", default="main", show_default=True, help="The branch to read and to commit to.")
WHERE = click.option(
    "--where",
    metavar="EXPRESSION",
    help="Only the partitions that this filter selects, such as \"day = '2024-05-01'\".",
)
ALL_OR_NOTHING = click.option(
    "--all-or-nothing", is_flag=True, help="Commit all units or none; by default failed ones are left out."
)
NO_WAIT = click.option("--no-wait", is_flag=True, help="Enqueue, print the job's id, and return.")


def table_options(command: F) -> F:
    """Add the options that say what to work on."""
    return TABLE(CATALOG(BRANCH(WHERE(command))))


def run_options(command: F) -> F:
    """Add the options that say how to run a job."""
    return ALL_OR_NOTHING(NO_WAIT(JSON(command)))


@contextmanager
def goes_on(settings: Settings, job: str, *, sent: bool = True) -> Iterator[None]:
    """Turn an interrupt, or an error that prevents reading a fleet's job, into an error that says that the job goes on.

    ``sent`` says whether the job was sent for sure.

    Raises:
        Interrupted: The user has interrupted the command.
        Unknown: The job cannot be read.
        Refused: There is no such job, or the configuration does not allow to read it.
    """
    state = f"{job} {'goes on' if sent else 'may have been sent'}"
    advice = f"`icefleet status {job}` shows it, `icefleet cancel {job}` cancels it."
    try:
        yield
    except KeyboardInterrupt as error:
        raise Interrupted(f"{state}: {advice}", job) from error
    except Exception as error:  # clients of Redis, catalogs and storage raise errors of many kinds
        if _is_final(error) and not (sent and is_of_broker(error.__cause__ or error)):
            raise
        log.info("%s cannot be read", job, exc_info=True)
        why = reason_of(error)
        if is_of_broker(error):
            why = str(connection_error(settings.redis_url or settings.broker_url, error))
        raise Unknown(f"{why.rstrip('.')}. {state}: {advice}", job) from error


@contextmanager
def resumable(job: str) -> Iterator[None]:
    """Turn what interrupts a job that this process works on into an error that says how to go on with the job.

    Raises:
        JobInterrupted: The user has interrupted the command, and the job has ended.
        Interrupted: The user has interrupted the command while the job was planned or committed.
        Unknown: Storage or the catalog fails, and what the job has staged stays.
        IcefleetError: The job has ended, or has not begun.
    """
    advice = f"`icefleet resume {job}` finishes what was begun, or says that nothing was."
    try:
        yield
    except JobInterrupted:
        raise
    except KeyboardInterrupt as error:
        raise Interrupted(advice, job) from error
    except Exception as error:  # clients of catalogs and storage raise errors of many kinds
        if _is_final(error) or isinstance(error, Failed | Corrupt):
            raise
        log.info("%s is interrupted", job, exc_info=True)
        raise Unknown(f"{reason_of(error).rstrip('.')}. {advice}", job) from error


def _is_final(error: Exception) -> bool:
    """Return whether an error is a refusal that does not pass."""
    return isinstance(error, Refused) and error.reason not in _PASSING


def reason_of(error: Exception) -> str:
    """Return an error in one line."""
    return str(error) if isinstance(error, IcefleetError) else failure_text(error)


def wait(job: Job, settings: Settings, *, as_json: bool) -> Report:
    """Wait for a job with a progress bar; see :func:`goes_on` for what may keep from it."""
    with goes_on(settings, job.id), render.progress_bar(job.name.table, quiet=as_json) as bar:
        return job.wait(progress=bar.show)


def require_redis(fleet: Fleet) -> Fleet:
    """Return a fleet whose Redis answers, if it has one.

    Raises:
        Refused: Redis does not answer.
    """
    JobRegistry(fleet.settings).check()
    return fleet


def find_fleet(fleet: Fleet) -> tuple[Fleet, bool]:
    """Return a fleet to read from, and whether its Redis is away: then only storage is read, with a warning."""
    try:
        return require_redis(fleet), False
    except Refused as error:
        render.show_warning(f"{error} What follows is from the tables' own storage and history.")
        return Fleet(fleet.settings.model_copy(update={"broker_url": "", "board_url": ""})), True


@contextmanager
def suggest_table(catalog: str, table: str | None) -> Iterator[None]:
    """Add the nearest table to the error if a table is unknown."""
    try:
        yield
    except Refused as error:
        nearest = nearest_table(catalog, table) if table and error.reason is Reason.UNKNOWN_TABLE else None
        if nearest is None:
            raise
        raise Refused(error.reason, f"{str(error).rstrip('.')}: did you mean {nearest!r}?") from error


def run(request: Request, *, no_wait: bool, as_json: bool) -> None:
    """Submit a request, and exit with the job's exit status; or, without waiting, print the job's id."""
    try:
        fleet = Fleet()
        if no_wait and fleet.settings.local:
            sentence = "--no-wait needs a fleet, and ICEFLEET_BROKER_URL is not set: leave it out to do the work here."
            raise Refused(Reason.USAGE, sentence)
        with suggest_table(request.catalog, request.table):
            table = open_table(request.catalog, request.table)
        check_request(table, request)  # refuse before a job exists what planning would refuse
        local = fleet.settings.local
        submitting = resumable(request.job) if local else goes_on(fleet.settings, request.job, sent=False)
        with submitting, render.progress_bar(request.table, quiet=as_json or not local) as bar:
            job = fleet.submit(request, on_progress=bar.update)
        if no_wait:
            queued = {"job": job.id, "table": request.table, "status": "queued"}
            print_json(queued) if as_json else click.echo(job.id)
            return
        report = wait(job, fleet.settings, as_json=as_json)
    except JobInterrupted as interrupt:
        report = interrupt.report
    except Unknown:
        raise
    except Exception as error:  # clients of catalogs and storage raise errors of many kinds
        if not as_json:
            raise
        refused = isinstance(error, Refused)
        known = request.model_dump(mode="json", include={"job", "table", "catalog", "operation"})
        report = Report(**known, status=Status.REFUSED if refused else Status.FAILED, reason=reason_of(error))
        if refused:  # before there was a job
            print_json(report.model_dump(mode="json") | {"job": None})
            sys.exit(report.exit_status)
    end(report, as_json)


def failure_text(error: Exception) -> str:
    """Return an error of a catalog or storage client in one line, with what to do if that is known."""
    if isinstance(error, StorageError):
        return redact(str(error))
    line = next(iter(redact(str(error)).strip().splitlines()), "") or type(error).__name__
    return f"{line} ({type(error).__name__}){storage_hint(error)}"


def dry_run(
    request: Request,
    columns: Sequence[render.UnitColumn],
    summarize: Callable[[PlanWithUnits], Iterator[str]],
    *,
    as_json: bool,
) -> None:
    """Plan a request and show the plan; nothing is written."""
    with suggest_table(request.catalog, request.table):
        planned = Fleet().plan_request(request)
    if as_json:
        # Without the fields that identify a plan of a job: no job has this plan.
        shown = planned.plan.model_dump(
            mode="json", exclude={"request": {"job", "submitted"}, "before": True, "token": True, "round": True}
        )
        print_json(shown)
    else:
        render.show_plan(planned.plan, columns, summarize(planned))


def show(report: Report, as_json: bool) -> None:
    """Print how a job ended."""
    if as_json:
        print_json(report.model_dump(mode="json"))
    else:
        render.show_report(report)


def end(report: Report, as_json: bool) -> NoReturn:
    """Print how a job ended, and exit with its exit status."""
    show(report, as_json)
    sys.exit(report.exit_status)
