"""Reading of the table by readers that share no code with Icefleet.

iceberg-rust under DataFusion is timed in a process of its own: it can be stopped, and starts cold each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Final

from pyiceberg.table import Table

from producer.common.errors import Failed, Reason, Refused
from tasks.demo.lineitem import KEY, QUERY_6, SCHEMA
from tasks.testing.reader import Checksum, open_session

#: The packages of the reader; imported where it reads, since a demonstration that only makes the table needs neither.
_PACKAGES: Final = ("datafusion", "pyiceberg_core")


@dataclass(frozen=True, slots=True)
class Reading:
    """What iceberg-rust reads, and in how many seconds."""

    query_seconds: float
    #: The answer of TPC-H's query 6.
    revenue: str
    #: For the checksum of every row and column.
    scan_seconds: float
    checksum: Checksum


def check_reader() -> None:
    """Check that the reader is installed.

    Raises:
        Refused: A package is missing; the message names it.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise Refused(Reason.CONFIGURATION, f"The demo needs {package}: install icefleet[demo].")


def read(table: Table, limit: float) -> Reading | None:
    """Read the table's current snapshot with iceberg-rust; return None if it took more than ``limit`` seconds.

    Raises:
        Failed: The reader failed, or died.
    """
    request = json.dumps({"location": table.metadata_location, "properties": dict(table.io.properties)})
    command = [sys.executable, "-P", "-W", "ignore", "-m", __name__]
    try:
        done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        message = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Failed(f"The reader could not read the table: {message}")
    answer = json.loads(done.stdout)
    return Reading(**{**answer, "checksum": Checksum(**answer["checksum"])})


def scan_with_pyiceberg(table: Table) -> int | str:
    """Return the number of rows that PyIceberg reads, or the reason why it cannot."""
    try:
        return len(table.scan(selected_fields=KEY[:1]).to_arrow())
    except (ValueError, NotImplementedError) as error:
        return str(error).partition(":")[0]


def _read_here(location: str, properties: dict[str, str]) -> Reading:
    session = open_session(location, "lineitem", properties)
    started = time.perf_counter()
    (answer,) = session.sql(QUERY_6).to_arrow_table().to_pylist()
    answered = time.perf_counter()
    checksum = Checksum.of_table(session, "lineitem", SCHEMA.column_names)
    return Reading(answered - started, str(answer["revenue"]), time.perf_counter() - answered, checksum)


if __name__ == "__main__":
    print(json.dumps(asdict(_read_here(**json.load(sys.stdin)))))
