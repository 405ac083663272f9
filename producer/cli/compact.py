"""The command ``compact``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from producer.cli.common import F, dry_run, run, run_options, table_options
from producer.cli.render import UnitColumn
from producer.common.sizes import count_text, size_text
from producer.model.job import Operation, Request
from producer.planning.compact.options import OPTION_FIELDS, encode_options
from producer.planning.compact.planner import expected_files
from producer.planning.units import PlanWithUnits

_COLUMNS: Final = (
    UnitColumn("files", lambda unit: f"{unit.files:,}"),
    UnitColumn("rows", lambda unit: f"{unit.rows:,}"),
    UnitColumn("deletes", lambda unit: f"{unit.delete_files:,}"),
    UnitColumn("to read", lambda unit: size_text(unit.cost)),
    UnitColumn("to write", lambda unit: size_text(unit.output)),
    UnitColumn("why", lambda unit: unit.why, is_number=False),
)


def _option_flags(command: F) -> F:
    """Add a flag for each option of a compaction; values stay text, since Options.parse checks them."""
    for name, field in reversed(list(OPTION_FIELDS.items())):
        if field.annotation is bool:
            option = click.option(f"--{name}/--no-{name}", default=None, help=field.description)
        else:
            kind = "SIZE" if name.endswith("-bytes") else "TEXT" if name in ("sort-order", "zorder") else "VALUE"
            option = click.option(f"--{name}", metavar=kind, help=field.description)
        command = option(command)
    return command


@click.command()
@table_options
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be done and why; nothing is written.")
@_option_flags
@run_options
def compact(is_dry_run: bool, no_wait: bool, as_json: bool, **given: Any) -> None:
    """Rewrite files of TABLE (namespace.table) that are small, large or have many deletes into well-sized ones.

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
    options = encode_options({name: given.pop(name.replace("-", "_")) for name in OPTION_FIELDS})
    request = Request.new(operation=Operation.COMPACT, options=options, **given)
    if is_dry_run:
        dry_run(request, _COLUMNS, _summary, as_json=as_json)
    else:
        run(request, no_wait=no_wait, as_json=as_json)


def _summary(planned: PlanWithUnits) -> Iterator[str]:
    plan = planned.plan
    units = [unit for unit in plan.units if unit.refused is None]
    if plan.rewrite and units:
        rewritten = count_text(sum(unit.files for unit in units), "data file is", "data files are")
        yield (
            f"{rewritten} rewritten ({plan.rewrite.strategy}) into {expected_files(planned)}, target size "
            f"{size_text(plan.rewrite.target_size)}: {count_text(len(units), 'unit')}, "
            f"{size_text(sum(unit.cost for unit in units))} to read, "
            f"{size_text(sum(unit.output for unit in units))} to write."
        )
    elif plan.nothing:
        yield f"No data file is rewritten: {plan.nothing}."
    if plan.dangling:
        yield "Delete files that reach no data file any more are dropped."
