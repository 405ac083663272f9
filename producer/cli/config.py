"""The command ``config``."""

from __future__ import annotations

import os
from collections.abc import Iterable

import click
from pyiceberg.utils.config import Config
from rich.markup import escape

from producer.cli import render
from producer.cli.common import JSON
from producer.cli.errors import print_json
from producer.common.redaction import redact
from producer.common.settings import Settings


@click.command()
@JSON
def config(as_json: bool) -> None:
    """Show every setting, its value and where it comes from.

    \b
    Example:
      ICEFLEET_BROKER_URL=redis://localhost:6379/0 icefleet config
    """
    rows = [
        (name, redact(value), _source(name, source), text) for name, value, source, text in Settings.load().describe()
    ]
    for catalog in Config().get_known_catalogs():
        kind = (Config().get_catalog_config(catalog) or {}).get("type", "")
        rows.append((f"catalog {catalog}", str(kind), "pyiceberg", "as PyIceberg is configured"))
    for name, nearest in Settings.unknown_variables():
        hint = f"no setting: did you mean {nearest}?" if nearest else "no setting"
        rows.append((name, "", _source(name, "set"), hint))
    if as_json:
        keys = ("setting", "value", "from", "description")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        _show_settings(rows)


def _source(name: str, source: str) -> str:
    if source == "default":
        return source
    return "environment" if name in {key.upper() for key in os.environ} else ".env"


def _show_settings(rows: Iterable[tuple[str, str, str, str]]) -> None:
    """Print settings, one a row: variable, value, source, description."""
    table = render.new_table("setting", "value", "from", "what it is", texts=(1, 3))
    for name, value, source, description in rows:
        where = f"[bold]{source}[/bold]" if source != "default" else source
        table.add_row(escape(name), escape(value), where, escape(description))
    render.print_table(table)
