"""``icefleet flower``: Flower, with what shows this fleet well."""

from __future__ import annotations

import sys
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

import click

from producer.broker.queue import Messenger
from producer.common.errors import Reason, Refused
from tasks.commands.common import run_command, state_folder

if TYPE_CHECKING:
    from producer.common.settings import Settings

#: What Flower does where neither its variables, nor its file, nor an option say otherwise.
_DEFAULTS: Final = {
    "address": "127.0.0.1",
    # Table, partition and job are arguments; how far a task is, and what it came to, is its result.
    "tasks_columns": "name,kwargs,state,result,received,runtime,worker",
    "persistent": True,
    "state_save_interval": 60_000,
    # Workers that compute on all cores answer late: within Flower's one second they are unknown. No longer than needed,
    # for who asks all workers waits for as long.
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
    _configure(settings, options)
    Messenger(settings).check()

    from tasks.application import app  # takes its settings from the environment when it is imported

    sys.exit(run_command(app, ["flower", *options]))


def _configure(settings: Settings, given: tuple[str, ...]) -> None:
    """Set the defaults of Flower in this process, and refuse what it would leave out or open to everybody."""
    try:
        import flower.command as command
        from tornado.options import Error, options
    except ModuleNotFoundError as error:
        raise Refused(
            Reason.CONFIGURATION, f"Flower needs {error.name}, which is not installed here: install icefleet[flower]."
        ) from error
    for text in given:  # Flower passes over what it does not know
        name, _, _ = text.removeprefix("--").partition("=")
        if not text.startswith("--") or name.replace("-", "_") not in options:
            sentence = f"Flower has no option {text!r}: its options are written --name=value."
            raise Refused(Reason.USAGE, sentence)
    for name, value in _DEFAULTS.items():
        setattr(options, name, value)
    options.db = str(state_folder(settings) / "flower")
    try:
        command.apply_env_options()
        command.apply_options("icefleet", given)
    except (Error, ValueError) as error:
        raise Refused(Reason.USAGE, f"Flower does not take its options: {error}.") from error
    if _has_login(options):
        return
    if not _is_near(options):
        sentence = (
            f"Flower would show the fleet to everybody who reaches {options.address or 'this machine'}: set "
            "FLOWER_BASIC_AUTH=user:password, or leave --address as it is."
        )
        raise Refused(Reason.CONFIGURATION, sentence)
    click.echo(
        "FLOWER_BASIC_AUTH is not set: everybody on this machine sees the pages, and the API answers nobody.", err=True
    )


def _has_login(options: Any) -> bool:
    """Whether Flower asks who is there."""
    return any(options.basic_auth or ()) or bool(options.auth)


def _is_near(options: Any) -> bool:
    """Whether Flower is reached from this machine alone."""
    if options.unix_socket or options.address == "localhost":
        return True
    try:
        return ip_address(options.address).is_loopback
    except ValueError:  # the name of an address, or none for all of the machine's
        return False
