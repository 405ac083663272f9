"""``icefleet beat``: wakes the sweeper, in a process of its own."""

from __future__ import annotations

import sys

import click

from producer.common.errors import Reason, Refused


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def beat(options: tuple[str, ...]) -> None:
    """Wake the sweeper every ICEFLEET_SWEEP_SECONDS. Exactly one for a fleet (or `icefleet worker --beat`).

    The time of its last wake-up is kept in ICEFLEET_STATE_DIR. OPTIONS are those of `celery beat`, such as
    --loglevel INFO or --schedule FILE.

    \b
    Example:
      icefleet beat --loglevel INFO
    """
    from producer.common.settings import Settings  # not needed to list the commands

    settings = Settings.load()
    if settings.local:
        raise Refused(Reason.CONFIGURATION, "ICEFLEET_BROKER_URL is not set: beat needs a broker to send to.")

    # The application takes its settings from the environment when it is imported.
    from tasks.application import app, run_command, state_folder

    schedule = state_folder() / "beat"
    sys.exit(run_command(app, ["beat", "--schedule", str(schedule), "--pidfile=", *options]))
