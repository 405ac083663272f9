"""iceberg-rust under DataFusion: reads tables by their metadata, without a catalog."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any

from datafusion import SessionContext
from pyiceberg_core.datafusion import IcebergDataFusionTable  # type: ignore[import-untyped]

from bench.peers.serving import claim_stdout, serve
from tasks.testing.reader import Checksum


def checksum(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a table, and the sum of their hashes over the columns that are named."""
    found = Checksum.of_table(_session(asked), "t", asked["columns"])
    return {"rows": found.rows, "hashes": str(found.hashes)}


def query(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a query in which ``{table}`` stands for the table, and the seconds until they were there."""
    started = time.perf_counter()
    session = _session(asked)
    rows = session.sql(asked["sql"].replace("{table}", "t")).to_arrow_table().to_pylist()
    return {"seconds": time.perf_counter() - started, "rows": rows}


def _session(asked: Mapping[str, Any]) -> SessionContext:
    context = SessionContext()
    table = IcebergDataFusionTable(
        identifier=["bench", "t"],
        metadata_location=asked["metadata_location"],
        file_io_properties=asked.get("file_io", {}),
    )
    context.register_table("t", table)
    return context


if __name__ == "__main__":
    versions = {"datafusion": metadata.version("datafusion"), "iceberg-rust": metadata.version("pyiceberg-core")}
    serve(claim_stdout(), {"checksum": checksum, "query": query}, versions)
