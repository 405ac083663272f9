"""``python -m bench``: the command line of the bench."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from bench.programs import PROGRAMS
from bench.report import write
from bench.results import WorkloadResult, save
from bench.runner import Runner, failures
from bench.sizes import SIZES
from bench.workloads import WORKLOADS

_REPORT = click.option(
    "--report",
    default="bench/report",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the report and of the results it is made from.",
)


@click.group()
def main() -> None:
    """Measure Icefleet beside its alternatives and beside the physical limit."""


@main.command()
@click.argument("workloads", nargs=-1, type=click.Choice(list(WORKLOADS)), metavar="[WORKLOAD]...")
@click.option(
    "--size",
    "size_name",
    default="full",
    show_default=True,
    type=click.Choice(list(SIZES)),
    help="smoke takes some minutes and checks that all works; medium is for shared machines; targets apply to full.",
)
@click.option("--runs", type=click.IntRange(1), help="Runs that count, instead of the size's.")
@click.option(
    "--patience",
    default=math.inf,
    type=click.FloatRange(0),
    help="Seconds after which a contestant of a case runs no more, if three runs count; no limit by default.",
)
@click.option(
    "--data",
    default="bench-data",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for tables, which are made once, for peers and for logs.",
)
@_REPORT
@click.option("--only", help="Programs that take part, separated by commas, such as icefleet,arrow-scan.")
@click.option(
    "--peers/--no-peers",
    default=None,
    help="Whether to fetch peers that are not installed; the default for the full size. Otherwise they are absent.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON object.")
def run(
    workloads: tuple[str, ...],
    size_name: str,
    runs: int | None,
    patience: float,
    data: Path,
    report: Path,
    only: str | None,
    peers: bool | None,
    as_json: bool,
) -> None:
    """Measure workloads, all by default, and write the report.

    \b
    Exit status: 0 all rows are right, 1 some are not or Icefleet failed, 2 refused.

    \b
    Examples:
      python -m bench run                                       everything; takes hours
      python -m bench run --size smoke --report /tmp/report     that all works
      python -m bench run w0 w6                                 two workloads; the others' results stay
      python -m bench run w0 --only icefleet --runs 3
    """
    chosen = only.split(",") if only else []
    if unknown := set(chosen) - PROGRAMS.keys():
        raise click.UsageError(f"--only {', '.join(sorted(unknown))}: choose of {', '.join(PROGRAMS)}")
    size = SIZES[size_name].with_runs(runs)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    results: list[WorkloadResult] = []
    fetch = size_name == "full" if peers is None else peers
    with Runner(data, size, console.print, only=chosen, fetch=fetch, patience=patience) as runner:
        for name in workloads or WORKLOADS:
            results.append(runner.measure(WORKLOADS[name]))
            save(report, results[-1])
    page = write(report, WORKLOADS)
    if as_json:
        click.echo(json.dumps([result.as_dict() for result in results]))
    broken = [sentence for result in results for sentence in failures(result)]
    for sentence in broken:
        console.print(f"[red]wrong:[/red] {escape(sentence)}")
    console.print(f"Report: {page}")
    sys.exit(1 if broken else 0)


@main.command("report")
@_REPORT
def render(report: Path) -> None:
    """Write the report again from its results."""
    click.echo(write(report, WORKLOADS))


@main.command("list")
def list_() -> None:
    """Workloads and contestants, and what each is for."""
    for workload in WORKLOADS.values():
        click.echo(f"{workload.name:16}{workload.title}. {workload.about}")
    click.echo()
    for program in PROGRAMS.values():
        click.echo(f"{program.name:16}{program.about}")
