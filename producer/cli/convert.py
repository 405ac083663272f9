"""The commands ``convert`` and ``plan``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from producer.cli.common import JSON, dry_run, run, run_options, table_options
from producer.cli.render import UnitColumn
from producer.common.sizes import count_text, size_text
from producer.model.job import Request
from producer.planning.units import PlanWithUnits

_COLUMNS: Final = (
    UnitColumn("files", lambda unit: f"{unit.files:,}"),
    UnitColumn("rows", lambda unit: f"{unit.rows:,}"),
    UnitColumn("deletes", lambda unit: f"{unit.delete_files:,}"),
    UnitColumn("delete rows", lambda unit: f"{unit.delete_rows:,}"),
    UnitColumn("to read", lambda unit: size_text(unit.cost)),
)


@click.command()
@table_options
@JSON
def plan(as_json: bool, **scope: Any) -> None:
    """Show what a conversion of TABLE would do. Nothing is written. (Of a compaction: icefleet compact --dry-run.)

    \b
    Example:
      icefleet plan db.events --where "day >= '2024-05-01'"
    """
    dry_run(Request.new(**scope), _COLUMNS, _summary, as_json=as_json)


@click.command()
@table_options
@run_options
def convert(no_wait: bool, as_json: bool, **scope: Any) -> None:
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
    run(Request.new(**scope), no_wait=no_wait, as_json=as_json)


def _summary(planned: PlanWithUnits) -> Iterator[str]:
    plan = planned.plan
    kind = "deletion vectors" if plan.format_version >= 3 else "position delete files"
    leaving = sum(r.complete for r in plan.retirements)
    staying = len(plan.retirements) - leaving
    yield (
        f"{count_text(leaving, 'equality delete file')} {'becomes' if leaving == 1 else 'become'} {kind}: "
        f"{count_text(len(plan.units), 'unit')}, {count_text(sum(u.files for u in plan.units), 'data file')}, "
        f"{size_text(sum(u.cost for u in plan.units))} to read."
    )
    if staying:
        more = "1 more is applied and stays, since it reaches" if staying == 1 else ""
        more = more or f"{staying:,} more are applied and stay, since they reach"
        yield f"{more} partitions that are not selected."
