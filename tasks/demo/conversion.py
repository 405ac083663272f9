"""Conversion of the table in a process of its own, which knows the table's catalog from its environment.

PyIceberg reads that once, when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from producer import Fleet
from producer.errors import Failed, IcefleetError
from producer.messages import Report
from producer.view import bar
from tasks.demo.place import TABLE, Place


def convert(place: Place) -> Report:
    """Convert the table, on the fleet where there is one, with a live progress bar on standard error.

    Raises:
        Failed: there was no report.
    """
    command = [sys.executable, "-W", "ignore", "-m", __name__, place.name]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **place.environment}, check=False
    )
    if done.returncode:
        raise Failed(f"The conversion died with exit status {done.returncode}.")
    told = json.loads(done.stdout.splitlines()[-1])
    if "error" in told:
        raise Failed(told["error"])
    return Report.model_validate(told)


def _convert_here(catalog: str) -> str:
    try:
        with bar(TABLE) as shown:
            job = Fleet().convert(TABLE, catalog=catalog, told=shown.told)
            return job.wait(progress=shown.show).model_dump_json()
    except IcefleetError as error:
        return json.dumps({"error": str(error)})


if __name__ == "__main__":
    print(_convert_here(sys.argv[1]))
