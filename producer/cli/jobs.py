"""The commands about jobs: ``status``, ``watch``, ``cancel``, ``resume`` and ``jobs``."""

from __future__ import annotations

from dataclasses import asdict

import click

from producer.cli import render
from producer.cli.common import JOB, JSON, connected, end, print_json, reachable, show, suggesting
from producer.cli.job_list import CHOICES, JobLine, job_lines
from producer.common.errors import Reason, Refused
from producer.fleet import Fleet
from producer.job import Job


@click.command()
@JOB
@JSON
def status(job: str, as_json: bool) -> None:
    """Show the progress of JOB, or its report if it has ended.

    \b
    Example:
      icefleet status convert:default:db.events:20240501T101500-1a2b3c4d
    """
    fleet, away = reachable(Fleet())
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
        render.show_progress(job, now)


@click.command()
@JOB
@JSON
def watch(job: str, as_json: bool) -> None:
    """Follow JOB with a live progress bar until it ends.

    \b
    Example:
      icefleet watch $(icefleet convert db.events --no-wait)
    """
    found = connected(Fleet()).job(job)
    with render.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    end(report, as_json)


@click.command()
@JOB
def cancel(job: str) -> None:
    """Cancel JOB: its staged files are deleted and nothing is committed.

    \b
    Example:
      icefleet cancel convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found = connected(Fleet()).job(job)
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
    found: Job = connected(Fleet()).job(job).resume()
    with render.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    end(report, as_json)


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
    fleet, _ = reachable(Fleet())
    with suggesting(catalog or "default", table):
        found = fleet.jobs(table, catalog=catalog)
    lines = job_lines(found, limit=limit, statuses=statuses)
    if as_json:
        print_json([line.as_json() for line in lines])
    else:
        render.show_jobs(lines)
