"""The command line: ``icefleet``."""

from __future__ import annotations

import json
import logging
import os
import sys
from importlib.metadata import entry_points, version
from typing import Any, NoReturn

import click
from pyiceberg.utils.config import Config

from producer import view
from producer.board import masked
from producer.catalog import open_table
from producer.errors import Failed, IcefleetError, Refused
from producer.fleet import Fleet
from producer.job import Job
from producer.messages import Report, Request, Status
from producer.planner import check
from producer.settings import Settings

_TABLE = click.argument("table")
_JOB = click.argument("job")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")
_CATALOG = click.option("--catalog", default="default", show_default=True, help="A catalog as PyIceberg knows it.")
_BRANCH = click.option("--branch", default="main", show_default=True, help="The branch to read and to commit to.")
_WHERE = click.option(
    "--where", metavar="EXPRESSION", help="Only partitions that this selects, as \"day = '2024-05-01'\"."
)


class Commands(click.Group):
    """The commands of this package, and those that other packages register as entry points."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in order."""
        found = {entry.name for entry in entry_points(group="icefleet.commands")}
        return sorted({*super().list_commands(ctx), *found})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name; one whose package is not installed says what is missing."""
        if (own := super().get_command(ctx, cmd_name)) is not None:
            return own
        for entry in entry_points(group="icefleet.commands", name=cmd_name):
            try:
                command: click.Command = entry.load()
            except ModuleNotFoundError as error:
                return _missing(cmd_name, error)
            return command
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what Icefleet refuses becomes a sentence and an exit status."""
        try:
            return super().invoke(ctx)
        except IcefleetError as error:
            _fail(error, "--json" in sys.argv)
        except (click.ClickException, click.Abort, click.exceptions.Exit, KeyboardInterrupt):
            raise
        except Exception as error:  # catalogs and storage raise what their clients raise
            if ctx.params.get("verbose"):
                raise
            text = str(error).strip() or type(error).__name__
            _fail(Failed(f"{text.splitlines()[0]} ({type(error).__name__}; -v shows where)"), "--json" in sys.argv)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("icefleet"), prog_name="icefleet")
@click.option("-v", "--verbose", is_flag=True, help="Log what is being done, to standard error.")
def main(verbose: bool) -> None:
    """Keep Apache Iceberg tables fast to read while streams write to them.

    \b
    Examples:
      icefleet plan db.events                 what would be done, and why
      icefleet convert db.events              equality deletes become position deletes or vectors
      icefleet worker                         serve the fleet from this machine
    """
    level = logging.INFO if verbose else logging.CRITICAL  # what matters is in the report
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


@main.command()
@_TABLE
@_CATALOG
@_BRANCH
@_WHERE
@_JSON
def plan(table: str, catalog: str, branch: str, where: str | None, as_json: bool) -> None:
    """Show what a conversion of TABLE would do. Nothing is written.

    \b
    Example:
      icefleet plan db.events --where "day >= '2024-05-01'"
    """
    planned = Fleet().plan(table, catalog=catalog, branch=branch, where=where).plan
    if as_json:
        _print_json(planned.model_dump(mode="json", exclude={"request": {"job", "submitted"}, "before": True}))
    else:
        view.show_plan(planned)


@main.command()
@_TABLE
@_CATALOG
@_BRANCH
@_WHERE
@click.option("--all-or-nothing", is_flag=True, help="Commit all units or none; by default failed ones are left out.")
@click.option("--no-wait", is_flag=True, help="Enqueue, print the job's id, and return.")
@_JSON
def convert(
    table: str, catalog: str, branch: str, where: str | None, all_or_nothing: bool, no_wait: bool, as_json: bool
) -> None:
    """Turn the equality deletes of TABLE (namespace.table) into position deletes (v2) or deletion vectors (v3).

    Runs on the fleet at ICEFLEET_BROKER_URL, or in this process when that is empty.

    \b
    Exit status: 0 committed or nothing to do, 1 failed, 2 refused, 3 partial.

    \b
    Examples:
      icefleet convert db.events
      icefleet convert db.events --where "day = '2024-05-01'" --json
      icefleet convert lake.db.events --catalog prod --branch audit --no-wait
    """
    request = Request.new(table, catalog=catalog, branch=branch, where=where, all_or_nothing=all_or_nothing)
    try:
        fleet = Fleet()
        check(open_table(catalog, table), request)  # refuse at the start what would be refused later
        with view.bar(table, quiet=as_json or no_wait) as bar:
            job = fleet.submit(request, told=bar.told)
            if no_wait and not fleet.settings.local:
                _print_json({"job": job.id, "table": table, "status": "queued"}) if as_json else click.echo(job.id)
                return
            report = job.wait(progress=bar.show)
    except Refused as error:
        if not as_json:
            raise
        report = Report(job=request.job, table=table, catalog=catalog, status=Status.REFUSED, reason=str(error))
    _end(report, as_json)


@main.command()
@_JOB
@_JSON
def status(job: str, as_json: bool) -> None:
    """Show how far JOB is, or how it ended.

    \b
    Example:
      icefleet status convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found = Fleet().job(job)
    if (report := found.report()) is not None:
        _show(report, as_json)
        return
    now = found.progress()
    if as_json:
        _print_json({"job": job, "table": found.name.table, "status": now.status, "units": now.units, "done": now.done})
    else:
        view.show_progress(job, now)


@main.command()
@_JOB
@_JSON
def watch(job: str, as_json: bool) -> None:
    """Follow JOB with a live progress bar until it ends.

    \b
    Example:
      icefleet watch $(icefleet convert db.events --no-wait)
    """
    found = Fleet().job(job)
    with view.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    _end(report, as_json)


@main.command()
@_JOB
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


@main.command()
@_JOB
@_JSON
def resume(job: str, as_json: bool) -> None:
    """Take up JOB after an interruption: what is staged stays staged, the rest is done.

    \b
    Example:
      icefleet resume convert:default:db.events:20240501T101500-1a2b3c4d
    """
    found: Job = Fleet().job(job).resume()
    with view.bar(found.name.table, quiet=as_json) as bar:
        report = found.wait(progress=bar.show)
    _end(report, as_json)


@main.command()
@click.argument("table", required=False)
@_CATALOG
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), help="How many, newest first.")
@_JSON
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
        _print_json([dict(zip(("job", "table", "status", "units"), row, strict=True)) for row in rows])
    else:
        view.show_jobs(rows)


@main.command()
@_JSON
def config(as_json: bool) -> None:
    """Show every setting, its value and where it comes from.

    \b
    Example:
      ICEFLEET_BROKER_URL=redis://localhost:6379/0 icefleet config
    """
    rows = [
        (name, masked(value), _source(name, source), text) for name, value, source, text in Settings.load().described()
    ]
    for catalog in Config().get_known_catalogs():
        kind = (Config().get_catalog_config(catalog) or {}).get("type", "")
        rows.append((f"catalog {catalog}", str(kind), "pyiceberg", "as PyIceberg is configured"))
    if as_json:
        keys = ("setting", "value", "from", "description")
        _print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        view.show_settings(rows)


def _source(name: str, source: str) -> str:
    if source == "default":
        return source
    return "environment" if name in {key.upper() for key in os.environ} else ".env"


def _show(report: Report, as_json: bool) -> None:
    if as_json:
        _print_json(report.model_dump(mode="json"))
    else:
        view.show_report(report)


def _end(report: Report, as_json: bool) -> NoReturn:
    _show(report, as_json)
    sys.exit(report.exit_status)


def _fail(error: IcefleetError, as_json: bool) -> NoReturn:
    if as_json:
        _print_json({"status": "refused" if error.exit_status == 2 else "failed", "reason": str(error)})
    else:
        view.show_error(error)
    sys.exit(error.exit_status)


def _print_json(value: object) -> None:
    click.echo(json.dumps(value))


def _missing(name: str, error: ModuleNotFoundError) -> click.Command:
    @click.command(
        name, help=f"(needs {error.name}: install icefleet[worker])", context_settings={"ignore_unknown_options": True}
    )
    @click.argument("rest", nargs=-1)
    def missing(rest: tuple[str, ...]) -> None:
        raise click.UsageError(f"{name} needs {error.name}, which is not installed here: install icefleet[worker].")

    return missing
