"""Runs commands of Celery for the fleet's application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from celery import Celery


def run_command(app: Celery, arguments: Sequence[str]) -> int:
    """Run one of ``celery``'s commands for an application; returns the exit status.

    ``app.start`` and ``app.worker_main`` ask the environment first: where ``APP`` is set, which is nothing unusual,
    they run another application.
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
