"""Maintenance of the table in a process of its own, which knows the table's catalog from its environment.

PyIceberg reads that once, when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from producer import Fleet
from producer.cli.render import bar
from producer.common.errors import Failed, IcefleetError
from producer.model.job import Operation, Report, Request
from tasks.demo.place import TABLE, Place


def convert(place: Place) -> Report:
    """Convert the table's equality deletes; see :func:`maintain`."""
    return maintain(place, Operation.CONVERT)


def compact(place: Place) -> Report:
    """Compact the table as it is done by default; see :func:`maintain`."""
    return maintain(place, Operation.COMPACT)


def maintain(place: Place, operation: Operation) -> Report:
    """Have an operation done, on the fleet where there is one, with a live progress bar on standard error.

    Raises:
        Failed: there was no report.
    """
    command = [sys.executable, "-P", "-W", "ignore", "-m", __name__, place.name, operation]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **place.environment}, check=False
    )
    if done.returncode:
        raise Failed(f"It died with exit status {done.returncode} while it was to {operation}.")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise Failed(answer["error"])
    return Report.model_validate(answer)


def _maintain_here(catalog: str, operation: Operation) -> str:
    try:
        with bar(TABLE) as shown:
            request = Request.new(TABLE, catalog=catalog, operation=operation)
            return Fleet().submit(request, on_progress=shown.update).wait(progress=shown.show).model_dump_json()
    except IcefleetError as error:
        return json.dumps({"error": str(error)})


if __name__ == "__main__":
    print(_maintain_here(sys.argv[1], Operation(sys.argv[2])))
