"""Errors that end a command, and their output; PyIceberg is not loaded: its configuration may be what is wrong."""

from __future__ import annotations

import json
import sys
from typing import Final, NoReturn

import click

from producer.cli import render
from producer.common.errors import Failed, IcefleetError, Refused
from producer.model.job import JobId, Report, Status

#: The status of a job whose state cannot be read.
UNKNOWN: Final = "unknown"


class Unknown(Failed):
    """The command ends before the job does: how the job ends is not known."""

    def __init__(self, sentence: str, job: str | None = None) -> None:
        super().__init__(sentence)
        self.job = job


class Interrupted(Unknown):
    """The user ends the command before the job ends."""


def fail(error: IcefleetError, as_json: bool) -> NoReturn:
    """Print an error, and exit with its exit status. Programs get the fields of a report; null is what is not known."""
    nothing: dict[str, object] = dict.fromkeys(("job", "table", "catalog", "operation"))
    if as_json and isinstance(error, Unknown):
        known = JobId.parse(error.job).model_dump(mode="json", exclude={"token"}) if error.job else {}
        print_json(nothing | known | {"job": error.job, "status": UNKNOWN, "reason": str(error)})
    elif as_json:
        status = Status.REFUSED if error.exit_status == Refused.exit_status else Status.FAILED
        report = Report(job="", table="", status=status, reason=str(error))
        print_json(report.model_dump(mode="json") | nothing)
    else:
        render.show_error(error)
    sys.exit(error.exit_status)


def print_json(value: object) -> None:
    """Print a JSON value on one line."""
    click.echo(json.dumps(value))
