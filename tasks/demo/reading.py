"""Reading of the table by readers that share no code with what wrote and converted it.

iceberg-rust under DataFusion is timed, in a process of its own: it can be stopped, and starts from nothing each time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from pyiceberg.table import Table

from producer.common.errors import Failed, Reason, Refused
from tasks.demo.lineitem import KEY, QUERY_6, SCHEMA
from tasks.testing.reader import Checksum

if TYPE_CHECKING:
    from datafusion import SessionContext

#: What the reader is made of; imported where it reads, for a demonstration that makes the table only needs neither.
_PACKAGES: Final = ("datafusion", "pyiceberg_core")


@dataclass(frozen=True, slots=True)
class Reading:
    """What iceberg-rust made of the table, and in how many seconds."""

    query_seconds: float
    #: The answer of TPC-H's query 6.
    revenue: str
    #: For the checksum of every row and column.
    scan_seconds: float
    checksum: Checksum


def check_reader() -> None:
    """Refuse where the reader is not installed.

    Raises:
        Refused: the sentence names what is missing.
    """
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise Refused(Reason.CONFIGURATION, f"The demo needs {package}: install icefleet[demo].")


def read(table: Table, limit: float) -> Reading | None:
    """Read the table's current snapshot with iceberg-rust.

    Args:
        limit: Seconds after which the reader is stopped.

    Returns:
        None when it was stopped.

    Raises:
        Failed: the reader gave up, or died.
    """
    asked = json.dumps({"location": table.metadata_location, "properties": dict(table.io.properties)})
    command = [sys.executable, "-P", "-W", "ignore", "-m", __name__]
    try:
        done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Failed(f"The reader could not read the table: {said}")
    answer = json.loads(done.stdout)
    return Reading(**{**answer, "checksum": Checksum(**answer["checksum"])})


def scan_with_pyiceberg(table: Table) -> int | str:
    """The number of rows that PyIceberg reads, or its reason why it does not."""
    try:
        return len(table.scan(selected_fields=KEY[:1]).to_arrow())
    except (ValueError, NotImplementedError) as error:
        return str(error).partition(":")[0]


def _read_here(location: str, properties: dict[str, str]) -> Reading:
    session = _session(location, properties)  # must outlive its queries
    started = time.perf_counter()
    (answer,) = session.sql(QUERY_6).to_arrow_table().to_pylist()
    answered = time.perf_counter()
    checksum = Checksum.of_table(session, "lineitem", SCHEMA.column_names)
    return Reading(answered - started, str(answer["revenue"]), time.perf_counter() - answered, checksum)


def _session(location: str, properties: dict[str, str]) -> SessionContext:
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable  # type: ignore[import-untyped]

    context = SessionContext()
    table = IcebergDataFusionTable(
        identifier=["demo", "lineitem"], metadata_location=location, file_io_properties=properties
    )
    context.register_table("lineitem", table)
    return context


if __name__ == "__main__":
    print(json.dumps(asdict(_read_here(**json.load(sys.stdin)))))
