"""The commands that look after jobs."""

from __future__ import annotations

from dataclasses import asdict

import click

from producer import view
from producer.commands.shared import CATALOG, JOB, JSON, end, print_json, show
from producer.errors import IcefleetError
from producer.fleet import Fleet
from producer.job import Job


@click.command()
@JOB
@JSON
def status(job: str, as_json: bool) -> None:
    """Show how far JOB is, or how it ended.

    \b
    Example:
      icefleet status convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found = Fleet().job(job)
    if (report := found.report()) is not None:
        show(report, as_json)
        return
    now = found.progress()
    if as_json:
        standing = {"job": job, "table": found.name.table, "status": now.status, "units": now.units, "done": now.done}
        print_json({**standing, "holders": [asdict(holder) for holder in now.holders]})
    else:
        view.show_progress(job, now)


@click.command()
@JOB
@JSON
def watch(job: str, as_json: bool) -> None:
    """Follow JOB with a live progress bar until it ends.

    \b
    Example:
      icefleet watch $(icefleet convert db.events --no-wait)
    """
    found = Fleet().job(job)
    with view.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    end(report, as_json)


@click.command()
@JOB
def cancel(job: str) -> None:
    """Stop JOB: what it staged is deleted, and nothing is committed any more.

    \b
    Example:
      icefleet cancel convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found = Fleet().job(job)
    if (report := found.report()) is not None:
        click.echo(f"{job} has ended already: {report.status}.")
        return
    found.cancel()
    click.echo(f"{job} is being cancelled.")


@click.command()
@JOB
@JSON
def resume(job: str, as_json: bool) -> None:
    """Take up JOB after an interruption: what is staged stays staged, the rest is done.

    \b
    Example:
      icefleet resume convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found: Job = Fleet().job(job).resume()
    with view.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    end(report, as_json)


@click.command()
@click.argument("table", required=False)
@CATALOG
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="How many, newest first.")
@JSON
def jobs(table: str | None, catalog: str, limit: int, as_json: bool) -> None:
    """List recent jobs, of TABLE or of all tables.

    \b
    Examples:
      icefleet jobs
      icefleet jobs db.events --json
    """
    rows = []
    for job in Fleet().jobs(table, catalog=catalog)[:limit]:
        try:
            now = job.progress()
            units = f"{now.done}/{now.units}" if now.units else ""
            rows.append((job.id, job.name.table, str(now.status), units))
        except IcefleetError:
            rows.append((job.id, job.name.table, "unknown", ""))
    if as_json:
        print_json([dict(zip(("job", "table", "status", "units"), row, strict=True)) for row in rows])
    else:
        view.show_jobs(rows)
