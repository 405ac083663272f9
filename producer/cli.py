"""The command line: ``icefleet``."""

from __future__ import annotations

import logging
import sys
import traceback
from importlib.metadata import entry_points, version
from typing import Any

import click

from icefleet_main import hidden
from producer.commands import config, jobs, work
from producer.commands.shared import fail
from producer.errors import Failed, IcefleetError, Reason, Refused
from producer.masking import mask_logs, masked


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
            if (sentence := hidden("tasks", "workers")) is not None:
                return _unavailable(cmd_name, "not here: a module hides Icefleet's", sentence)
            try:
                command: click.Command = entry.load()
            except ModuleNotFoundError as error:
                extra = f"install icefleet[{cmd_name}]"  # what brings it has the command's name
                needs = f"{cmd_name} needs {error.name}, which is not installed here: {extra}."
                return _unavailable(cmd_name, f"needs {error.name}: {extra}", needs)
            return command
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what Icefleet refuses becomes a sentence and an exit status."""
        try:
            return super().invoke(ctx)
        except IcefleetError as error:
            fail(error, "--json" in sys.argv)
        except (click.ClickException, click.Abort, click.exceptions.Exit, KeyboardInterrupt):
            raise
        except Exception as error:  # catalogs and storage raise what their clients raise
            if ctx.params.get("verbose"):
                click.echo(masked(traceback.format_exc()), err=True)
            text = str(error).strip() or type(error).__name__
            fail(Failed(f"{text.splitlines()[0]} ({type(error).__name__}; -v shows where)"), "--json" in sys.argv)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("icefleet"), prog_name="icefleet")
@click.option("-v", "--verbose", is_flag=True, help="Log what is being done, to standard error.")
def main(verbose: bool) -> None:
    """Keep Apache Iceberg tables fast to read while streams write to them.

    \b
    Examples:
      icefleet plan db.events                 what would be done, and why
      icefleet convert db.events              equality deletes become position deletes or vectors
      icefleet compact db.events              small and delete-laden files become well-sized ones
      icefleet worker                         serve the fleet from this machine
    """
    level = logging.INFO if verbose else logging.CRITICAL  # what matters is in the report
    mask_logs()
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


for _command in (
    work.plan,
    work.convert,
    work.compact,
    jobs.status,
    jobs.watch,
    jobs.cancel,
    jobs.resume,
    jobs.jobs,
    config.config,
):
    main.add_command(_command)


def _unavailable(name: str, why: str, sentence: str) -> click.Command:
    """A command that says why it cannot be run here."""

    @click.command(name, help=f"({why})", context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def unavailable(rest: tuple[str, ...]) -> None:
        raise Refused(Reason.CONFIGURATION, sentence)

    return unavailable
