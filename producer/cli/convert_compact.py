"""The commands that do work on a table, or tell what they would do."""

from __future__ import annotations

from typing import Any, Final

import click

from producer.cli.common import (
    ALL_OR_NOTHING,
    BRANCH,
    CATALOG,
    JSON,
    NO_WAIT,
    TABLE,
    WHERE,
    F,
    dry_run,
    run,
    together,
)
from producer.common.errors import Reason, Refused
from producer.model.job import Operation, Request
from producer.planning.compact.options import NAMES, text_of

#: Bytes that a target is taken for a mistake below, where it has no unit.
_SMALLEST: Final = 1 << 16

_WHAT = together(TABLE, CATALOG, BRANCH, WHERE)
_HOW = together(ALL_OR_NOTHING, NO_WAIT, JSON)


def _flags(command: F) -> F:
    """A flag for each option of a compaction; their values go on as they were given, to be judged in one place."""
    for name, field in reversed(list(NAMES.items())):
        if field.annotation is bool:
            option = click.option(f"--{name}/--no-{name}", default=None, help=field.description)
        else:
            kind = "SIZE" if name.endswith("-bytes") else "TEXT" if name in ("sort-order", "zorder") else "VALUE"
            option = click.option(f"--{name}", metavar=kind, help=field.description)
        command = option(command)
    return command


@click.command()
@_WHAT
@JSON
def plan(table: str, catalog: str, branch: str, where: str | None, as_json: bool) -> None:
    """Show what a conversion of TABLE would do. Nothing is written. (Of a compaction: icefleet compact --dry-run.)

    \b
    Example:
      icefleet plan db.events --where "day >= '2024-05-01'"
    """
    dry_run(Request.new(table, catalog=catalog, branch=branch, where=where), as_json=as_json)


@click.command()
@_WHAT
@_HOW
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
    run(request, no_wait=no_wait, as_json=as_json)


@click.command()
@_WHAT
@click.option("--dry-run", "dry", is_flag=True, help="Show what would be done and why; nothing is written.")
@_flags
@_HOW
def compact(
    table: str,
    catalog: str,
    branch: str,
    where: str | None,
    dry: bool,
    all_or_nothing: bool,
    no_wait: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Rewrite small, oversized and delete-laden files of TABLE (namespace.table) into well-sized ones.

    Deletes of every kind are applied on the way. Options have the names and defaults of Iceberg's rewrite_data_files.
    SIZE is bytes, or has a unit, as 128MB (1 MB is 1,048,576 bytes, as in Spark).
    Runs on the fleet at ICEFLEET_BROKER_URL, or in this process when that is empty.

    \b
    Exit status: 0 committed or nothing to do, 1 failed, 2 refused, 3 partial.

    \b
    Examples:
      icefleet compact db.events --dry-run
      icefleet compact db.events --tier minor --where "day = '2024-05-01'"
      icefleet compact db.events --sort-order "user desc nulls last, at"
      icefleet compact db.events --zorder latitude,longitude --rewrite-all --json
    """
    _check_unit(flags.get("target_file_size_bytes"))
    options = text_of({name.replace("_", "-"): value for name, value in flags.items()})
    request = Request.new(
        table,
        operation=Operation.COMPACT,
        catalog=catalog,
        branch=branch,
        where=where,
        all_or_nothing=all_or_nothing,
        options=options,
    )
    if dry:
        dry_run(request, as_json=as_json)
    else:
        run(request, no_wait=no_wait, as_json=as_json)


def _check_unit(size: str | None) -> None:
    """Refuse a number of bytes that no data file has: a unit was forgotten."""
    if size is not None and size.strip().isdigit() and int(size) < _SMALLEST:
        sentence = f"--target-file-size-bytes {size} is {size} bytes: write {size}MB, or {size}b if that is meant."
        raise Refused(Reason.USAGE, sentence)
