"""The commands about jobs: ``status``, ``watch``, ``cancel``, ``resume`` and ``jobs``."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Final

import click
from rich.markup import escape

from producer.broker.leases import Holder
from producer.cli import render
from producer.cli.common import (
    JOB,
    JSON,
    end,
    find_fleet,
    goes_on,
    reason_of,
    require_redis,
    resumable,
    show,
    suggest_table,
    wait,
)
from producer.cli.errors import UNKNOWN, print_json
from producer.common.errors import Reason, Refused
from producer.common.sizes import count_text
from producer.fleet import Fleet
from producer.job import Job, JobInterrupted, Progress
from producer.model.job import Status

#: The statuses that jobs can be filtered by.
CHOICES: Final = (*(str(status) for status in Status), UNKNOWN)


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list."""

    job: str
    table: str
    catalog: str
    operation: str
    #: One of :class:`~producer.model.job.Status`, or ``unknown``.
    status: str
    #: Units that have ended, and all of them; 0 until the job is planned.
    done: int
    units: int
    #: When the job was submitted, in seconds since 1970.
    started: float | None
    #: Seconds from then to its end, or to now.
    seconds: float | None
    #: Why it ended as it did, why a step of it is tried again, or why its state is unknown.
    reason: str | None

    @classmethod
    def of(cls, job: Job) -> JobLine:
        """Read a job's state."""
        done, units, seconds, reason = 0, 0, None, None
        try:
            if (report := job.report()) is not None:
                status, done, units = str(report.status), report.units, report.units
                seconds, reason = report.seconds or None, report.reason
            else:
                now = job.progress()
                status, done, units = str(now.status), now.done, now.units
                if (submitted := job.name.submitted) is not None:
                    seconds = max(0.0, round(time.time() - submitted, 1))  # the submitter's clock may be ahead
                reason = now.problem
        except Exception as error:  # clients of catalogs and storage raise errors of many kinds
            if isinstance(error, Refused) and error.reason is Reason.BROKER:
                raise
            status, reason = UNKNOWN, reason_of(error)
        name = job.name
        return cls(
            job.id, name.table, name.catalog, name.operation, status, done, units, name.submitted, seconds, reason
        )

    @property
    def started_text(self) -> str:
        """When the job was submitted, as ISO 8601 in UTC; empty if unknown."""
        return "" if self.started is None else f"{datetime.fromtimestamp(self.started, UTC):%Y-%m-%dT%H:%M:%SZ}"

    def as_json(self) -> dict[str, object]:
        """Return the line as a JSON object."""
        return asdict(self) | {"started": self.started_text or None}


def job_lines(jobs: Iterable[Job], *, limit: int, statuses: Collection[str] = ()) -> list[JobLine]:
    """Return lines of the first jobs that have one of the statuses, or of the first jobs if no status is given.

    No more jobs are read than necessary.
    """
    lines: Iterator[JobLine] = (JobLine.of(job) for job in jobs)
    return list(islice((line for line in lines if not statuses or line.status in statuses), limit))


@click.command()
@JOB
@JSON
def status(job: str, as_json: bool) -> None:
    """Show the progress of JOB, or its report if it has ended.

    \b
    Example:
      icefleet status convert:default:db.events:20240501T101500-1a2b3c4d
    """
    fleet, away = find_fleet(Fleet())
    found = fleet.job(job)
    try:
        report = found.report()
        now = found.progress() if report is None else None
    except Refused as error:
        if away and error.reason is Reason.UNKNOWN_JOB:
            sentence = f"Storage has nothing of {job}, and Redis, which may have it, is away: try again."
            raise Refused(Reason.UNKNOWN_JOB, sentence) from error
        raise
    if report is not None:
        show(report, as_json)
    elif now is not None and as_json:
        line = JobLine.of(found).as_json() | {"status": now.status, "done": now.done, "units": now.units}
        files = {"files_done": now.files_done, "files": now.files}
        print_json({**line, **files, "holders": [asdict(holder) for holder in now.holders]})
    elif now is not None:
        show_progress(job, now)


@click.command()
@JOB
@JSON
def watch(job: str, as_json: bool) -> None:
    """Follow JOB with a live progress bar until it ends.

    \b
    Example:
      icefleet watch $(icefleet convert db.events --no-wait)
    """
    fleet = require_redis(Fleet())
    end(wait(fleet.job(job), fleet.settings, as_json=as_json), as_json)


@click.command()
@JOB
def cancel(job: str) -> None:
    """Cancel JOB: its staged files are deleted and nothing is committed.

    \b
    Example:
      icefleet cancel convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found = require_redis(Fleet()).job(job)
    if (report := found.report()) is not None:
        click.echo(f"{job} has ended already: {report.status}.")
        return
    found.cancel()
    click.echo(f"{job} is being cancelled.")


@click.command()
@JOB
@JSON
def resume(job: str, as_json: bool) -> None:
    """Continue JOB after an interruption: staged units stay staged, the rest is done.

    \b
    Example:
      icefleet resume convert:default:db.events:20240501T101500-1a2b3c4d
    """
    fleet = require_redis(Fleet())
    found = fleet.job(job)
    try:
        with resumable(job) if fleet.settings.local else goes_on(fleet.settings, job, sent=False):
            found = found.resume()
    except JobInterrupted as interrupt:
        end(interrupt.report, as_json)
    end(wait(found, fleet.settings, as_json=as_json), as_json)


@click.command()
@click.argument("table", required=False)
@click.option(
    "--catalog",
    help="Only jobs of this catalog; by default all that Redis knows, or if it knows none, those of `default`.",
)
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(CHOICES),
    help="Only jobs with this status; may be repeated.",
)
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="How many, newest first.")
@JSON
def jobs(table: str | None, catalog: str | None, statuses: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List recent jobs, of TABLE or of all tables, with start (in UTC), time taken and reason.

    Without Redis they are read from the tables' own history and storage.

    \b
    Examples:
      icefleet jobs
      icefleet jobs --status failed --status partial
      icefleet jobs db.events --json
    """
    fleet, _ = find_fleet(Fleet())
    with suggest_table(catalog or "default", table):
        found = fleet.jobs(table, catalog=catalog)
    lines = job_lines(found, limit=limit, statuses=statuses)
    if as_json:
        print_json([line.as_json() for line in lines])
    else:
        show_jobs(lines)


def show_progress(job: str, now: Progress) -> None:
    """Print the progress of a job that has not ended, and the workers that hold its units."""
    shares = [f"{now.done:,} of {count_text(now.units, 'unit')}"] if now.units else []
    shares += [f"{now.files_done:,} of {count_text(now.files, 'file')}"] if now.files else []
    render.out.print(escape(", ".join([f"{job}: {now.status}", *shares])))
    if now.problem:
        render.out.print(f"  {escape(now.problem)}")
    for holder in now.holders[: render.MAX_ROWS]:
        render.out.print(f"  {escape(_holder_text(holder))}")


def _holder_text(holder: Holder) -> str:
    """Describe who holds a unit since when, its progress, and when its worker was last seen."""
    since, seen = (time.strftime("%H:%M:%S", time.localtime(at)) for at in (holder.since, holder.seen))
    files = f", {holder.files_done:,} of {count_text(holder.files, 'file')}" if holder.files else ""
    partition = f" ({holder.partition})" if holder.partition else ""
    last = f"last seen at {seen}, {holder.silent:.0f} s ago"
    return f"unit {holder.unit}{partition}: {holder.worker} since {since}{files}, {last}"


def show_jobs(lines: Sequence[JobLine]) -> None:
    """Print jobs, one a row. Ids are never broken."""
    if not lines:
        render.out.print("No jobs.")
        return
    names = ("job", "catalog", "table", "status", "units", "started", "took", "reason")
    table = render.new_table(*names, numbers=(4, 6), texts=(7,))
    for line in lines:
        table.add_row(*_cells(line))
    render.print_table(table)


def _cells(line: JobLine) -> tuple[str, ...]:
    colour = render.COLOURS.get(Status(line.status), "blue") if line.status in set(Status) else "dim"
    units = f"{line.done:,}/{line.units:,}" if line.units else ""
    took = "" if line.seconds is None else _duration(line.seconds)
    status = f"[{colour}]{line.status}[/{colour}]"
    texts = (escape(text) for text in (line.job, line.catalog, line.table))
    return *texts, status, units, line.started_text, took, escape(line.reason or "")


def _duration(seconds: float) -> str:
    """Format a duration such as ``4.2s``, ``12:07`` or ``3:12:07``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
