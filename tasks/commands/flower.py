"""``icefleet flower``: Flower, configured for the fleet."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from typing import Any, Final

import click

from producer.common.errors import Reason, Refused

#: Defaults of Flower's options; its variables, its file and the command line override them.
_DEFAULTS: Final = {
    "address": "127.0.0.1",
    # Table, partition and job are arguments; progress and result of a task are its result.
    "tasks_columns": "name,kwargs,state,result,received,runtime,worker",
    "persistent": True,
    "state_save_interval": 60_000,
    # Workers that compute on all cores answer late, often after Flower's one second. No longer than needed: whoever
    # asks all workers waits for as long.
    "inspect_timeout": 5_000.0,
}


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def flower(options: tuple[str, ...]) -> None:
    """Show the fleet in a browser: tasks, how far they are, workers, queues; at http://localhost:5555.

    Set FLOWER_BASIC_AUTH=user:password: without it the API answers nobody. Its history is kept in ICEFLEET_STATE_DIR.
    OPTIONS are Flower's own, written --name=value, such as --port=8080 or --address=10.0.0.5; so are its variables
    FLOWER_PORT, FLOWER_ADDRESS and so on. Needs the extra icefleet[flower].

    \b
    Example:
      FLOWER_BASIC_AUTH=operator:secret icefleet flower --port=8080
    """
    from producer.common.settings import Settings  # not needed to list the commands

    settings = Settings.load()
    if settings.local:
        raise Refused(Reason.CONFIGURATION, "ICEFLEET_BROKER_URL is not set: Flower needs a broker to listen to.")
    _configure(options)

    from tasks.application import app, run_command  # takes its settings from the environment when it is imported

    sys.exit(run_command(app, ["flower", *options]))


def _configure(arguments: tuple[str, ...]) -> None:
    """Set the defaults of Flower in this process, and refuse what it would ignore or open to everybody."""
    from tasks.application import state_folder

    try:
        import flower.command as command
        from tornado.options import Error, options
    except ModuleNotFoundError as error:
        raise Refused(
            Reason.CONFIGURATION, f"Flower needs {error.name}, which is not installed here: install icefleet[flower]."
        ) from error
    for text in arguments:  # Flower ignores options that it does not know
        name, _, _ = text.removeprefix("--").partition("=")
        if not text.startswith("--") or name.replace("-", "_") not in options:
            sentence = f"Flower has no option {text!r}: its options are written --name=value."
            raise Refused(Reason.USAGE, sentence)
    for name, value in _DEFAULTS.items():
        setattr(options, name, value)
    options.db = str(state_folder() / "flower")
    try:
        command.apply_env_options()
        command.apply_options("icefleet", arguments)
    except (Error, ValueError) as error:
        raise Refused(Reason.USAGE, f"Flower does not take its options: {error}.") from error
    if any(options.basic_auth or ()) or options.auth:  # Flower asks for a login
        return
    if not _is_local(options):
        sentence = (
            f"Flower would show the fleet to everybody who reaches {options.address or 'this machine'}: set "
            "FLOWER_BASIC_AUTH=user:password, or leave --address as it is."
        )
        raise Refused(Reason.CONFIGURATION, sentence)
    click.echo(
        "FLOWER_BASIC_AUTH is not set: everybody on this machine sees the pages, and the API answers nobody.", err=True
    )


def _is_local(options: Any) -> bool:
    if options.unix_socket or options.address == "localhost":
        return True
    try:
        return ip_address(options.address).is_loopback
    except ValueError:  # the name of an address, or none for all of the machine's
        return False
