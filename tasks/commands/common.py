"""What the commands share: running a command of Celery, and the folder of the fleet's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from producer.common.errors import Reason, Refused

if TYPE_CHECKING:
    from pathlib import Path

    from celery import Celery

    from producer.common.settings import Settings


def run_command(app: Celery, arguments: Sequence[str]) -> int:
    """Run one of ``celery``'s commands for an application; return the exit status.

    ``app.start`` and ``app.worker_main`` read the environment first: where ``APP`` is set, which is common, they run
    another application.
    """
    from celery.bin.base import CLIContext
    from celery.bin.celery import celery

    name, *rest = arguments
    command = celery.commands[name]
    shared = CLIContext(app=app, no_color=False, workdir=None, quiet=False)
    parent = click.Context(celery, info_name="icefleet", obj=shared)
    try:
        with command.make_context(name, rest, parent=parent) as context:
            command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code or 0
    return 0


def state_folder(settings: Settings) -> Path:
    """Return the folder of what processes keep between runs; make it, for this user alone, if it is missing.

    Raises:
        Refused: It cannot be made.
    """
    folder = settings.state_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = f"The folder {folder} cannot be made ({error.strerror}): have ICEFLEET_STATE_DIR name another."
        raise Refused(Reason.CONFIGURATION, sentence) from error
    return folder
