"""The command ``icefleet demo``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from producer.common.errors import Reason, Refused


@click.command(context_settings={"show_default": True})
@click.option(
    "--dir",
    "folder",
    default="icefleet-demo",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for catalog and table; what an earlier demo left there is replaced.",
)
@click.option("--catalog", help="A configured catalog for the table, instead of one of its own in --dir.")
@click.option(
    "--scale",
    default=0.5,
    type=click.FloatRange(0.001, 1000),
    help="TPC-H's scale factor: 1 is 6 million rows. Reading before the conversion grows with its square.",
)
@click.option(
    "--format-version",
    default="2",
    type=click.Choice(["2", "3"]),
    help="Format version of the table: 2 gets position deletes, 3 deletion vectors.",
)
@click.option(
    "--batches",
    default=4,
    type=click.IntRange(1, 1000),
    help="Commits of the stream; each changes 0.5 % of the rows.",
)
@click.option("--table-only", is_flag=True, help="Make the table and convert nothing; needs no Spark and no reader.")
@click.option("--keep/--no-keep", default=True, help="Keep the table at the end, to look further.")
@click.option("--read-limit", default=600.0, type=click.FloatRange(1), help="Seconds after which a reader is stopped.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for programs.")
def demo(
    folder: Path,
    catalog: str | None,
    scale: float,
    format_version: str,
    batches: int,
    table_only: bool,
    keep: bool,
    read_limit: float,
    as_json: bool,
) -> None:
    """Fill a table with equality deletes as a stream does, then convert and compact it, reading it at each step.

    The table is TPC-H's lineitem. It is read with iceberg-rust, which shares no code with Icefleet, and its rows are
    compared by checksum with what the stream wrote. Takes some two minutes on two cores.

    \b
    Exit status: 0 all rows are the same, 1 they are not or a step failed, 2 refused.

    \b
    Examples:
      icefleet demo
      icefleet demo --scale 0.1 --format-version 3
      icefleet demo --table-only                                a table to try the other commands on
    """
    try:
        from producer.common.settings import Settings
        from tasks.demo import demonstration
        from tasks.demo.catalog import TABLE, DemoCatalog
        from tasks.demo.page import Page
    except ModuleNotFoundError as error:
        missing = (error.name or "more").partition(".")[0]
        raise Refused(Reason.CONFIGURATION, f"The demo needs {missing}: install icefleet[demo].") from error

    if table_only and not keep:
        raise Refused(Reason.USAGE, "--table-only and --no-keep leave nothing: choose one.")
    demonstration.check(Settings.load(), private=catalog is None, only_table=table_only)
    started = time.perf_counter()
    page = Page(quiet=as_json)
    demo_catalog = DemoCatalog.private(folder) if catalog is None else DemoCatalog.configured(catalog)
    steps = demonstration.Demonstration(demo_catalog, page, scale, batches, int(format_version), read_limit)
    difference = None
    try:
        if table_only:
            figures = steps.make_table()
        else:
            outcome = steps.run()
            figures, difference = outcome.figures(), outcome.difference
            page.print_outcome(outcome)
    finally:
        if not keep:
            demo_catalog.remove()
    if keep:
        page.print_next_commands(demo_catalog, is_converted=not table_only)
    if as_json:
        answer = {
            "table": TABLE,
            "catalog": demo_catalog.name,
            "environment": demo_catalog.environment,
            "scale": scale,
            "batches": batches,
            "format_version": int(format_version),
            **figures,
            "seconds": round(time.perf_counter() - started, 1),
        }
        click.echo(json.dumps(answer))
    if difference is not None:
        sys.exit(1)
