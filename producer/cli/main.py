"""The command line: ``icefleet``."""

from __future__ import annotations

import logging
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points, version
from typing import Any, NoReturn

import click

from icefleet_main import hidden
from producer.common.errors import Failed, IcefleetError, Reason, Refused, first_line
from producer.common.redaction import redact, redact_logs
from producer.planning import OPERATIONS

#: The commands of this package: their module in ``producer.cli``, and their line in the list of commands. A module is
#: loaded when its command is run, so that the list does not wait for what commands need. The command of an operation
#: has the operation's name, and so has its module.
_OWN = {
    "plan": ("convert", "Show what a conversion of TABLE would do. Nothing is written."),
    **{str(name): (name.replace("-", "_"), definition.summary) for name, definition in OPERATIONS.items()},
    "status": ("jobs", "Show the progress of JOB, or its report if it has ended."),
    "watch": ("jobs", "Follow JOB with a live progress bar until it ends."),
    "cancel": ("jobs", "Cancel JOB: its staged files are deleted and nothing is committed."),
    "resume": ("jobs", "Continue JOB after an interruption: staged units stay staged, the rest is done."),
    "jobs": ("jobs", "List recent jobs, of TABLE or of all tables, with start (in UTC), time taken and reason."),
    "check": ("check", "Try broker, workers, clocks, catalog, Java and scratch, and the storage of TABLE."),
    "config": ("config", "Show every setting, its value and where it comes from."),
}


class Commands(click.Group):
    """The commands of this package, and those that other packages register as entry points."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, those of this package without loading them."""
        lines = []
        for name in self.list_commands(ctx):
            if name in _OWN:
                lines.append((name, _OWN[name][1]))
            elif (command := self.get_command(ctx, name)) is not None and not command.hidden:
                lines.append((name, command.get_short_help_str(limit=sys.maxsize)))
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands in order."""
        found = {entry.name for entry in entry_points(group="icefleet.commands")}
        return sorted({*_OWN, *found})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; if its package is not installed, the command says what is missing."""
        if cmd_name in _OWN:
            own: click.Command = getattr(import_module(f"producer.cli.{_OWN[cmd_name][0]}"), cmd_name.replace("-", "_"))
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the requested command; if there is none of its name, the error suggests the nearest."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            if not close or "mean" in error.message:
                raise
            raise click.UsageError(f"{error.message} Did you mean {close[0]!r}?", ctx) from error

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what comes before the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _refuse_usage(error)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error becomes a sentence and an exit status."""
        try:
            return super().invoke(ctx)
        except IcefleetError as error:
            _fail(error)
        except click.UsageError as error:
            _refuse_usage(error)
        except (click.ClickException, click.Abort, click.exceptions.Exit, KeyboardInterrupt):
            raise
        except Exception as error:  # clients of catalogs and storage raise errors of many kinds
            if ctx.params.get("verbose"):
                click.echo(redact(traceback.format_exc()), err=True)
            if (refused := _unreadable_configuration()) is not None:
                _fail(refused)
            from producer.broker.connections import is_of_broker
            from producer.cli.common import failure_text

            if is_of_broker(error):
                _fail(_redis_lost(error))
            _fail(Failed(f"{failure_text(error)}; icefleet -v shows the stack"))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(version("icefleet"), prog_name="icefleet")
@click.option("-v", "--verbose", is_flag=True, help="Log what is being done, to standard error.")
def main(verbose: bool) -> None:
    """Keep Apache Iceberg tables fast to read while streams write to them.

    \b
    Examples:
      icefleet plan db.events                 what would be done, and why
      icefleet convert db.events              equality deletes become position deletes or vectors
      icefleet compact db.events              small files, and those with many deletes, become well-sized ones
      icefleet worker                         serve the fleet from this machine
    """
    _warn_of_unknown_variables()
    level = logging.INFO if verbose else logging.CRITICAL  # the report says what matters
    redact_logs()
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


def _fail(error: IcefleetError) -> NoReturn:
    from producer.cli.errors import fail

    fail(error, "--json" in sys.argv)


def _refuse_usage(error: click.UsageError) -> NoReturn:
    """Refuse wrong arguments: for programs as any other refusal, for people with Click's line on the usage."""
    if "--json" not in sys.argv:
        raise error
    _fail(Refused(Reason.USAGE, error.format_message()))


def _warn_of_unknown_variables() -> None:
    from producer.cli.render import show_warning
    from producer.common.settings import Settings

    for name, nearest in Settings.unknown_variables():
        hint = f"did you mean {nearest}?" if nearest else "`icefleet config` lists them."
        show_warning(f"{name} is set and is no setting of Icefleet: {hint}")


def _unreadable_configuration() -> Refused | None:
    """Return a refusal if PyIceberg's configuration cannot be read: no module that reads tables can be loaded then."""
    from pyiceberg.utils.config import Config

    try:
        Config()
    except Exception as error:  # of YAML, of the file, or of the variables
        mark = getattr(error, "problem_mark", None)  # not the text: it shows the line, which may hold a secret
        problem = first_line(error) if mark is None else f"line {mark.line + 1}: {getattr(error, 'problem', '')}"
        where = ".pyiceberg.yaml in PYICEBERG_HOME, the home folder or this one, and PYICEBERG_… variables"
        return Refused(Reason.CONFIGURATION, f"PyIceberg's configuration ({where}) cannot be read: {problem}.")
    return None


def _redis_lost(error: Exception) -> IcefleetError:
    """Return the error for a connection that broke while a command ran; a command is refused if it cannot start."""
    from producer.broker.connections import connection_error
    from producer.cli.errors import Unknown
    from producer.common.settings import Settings

    settings = Settings.load()
    refused = connection_error(settings.redis_url or settings.broker_url, error)
    return Unknown(f"{refused} Jobs that were sent go on: `icefleet jobs` lists them.")


def _unavailable(name: str, why: str, sentence: str) -> click.Command:
    @click.command(name, help=f"({why})", context_settings={"ignore_unknown_options": True})
    @click.argument("rest", nargs=-1)
    def unavailable(rest: tuple[str, ...]) -> None:
        raise Refused(Reason.CONFIGURATION, sentence)

    return unavailable
