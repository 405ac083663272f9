"""Spark's own reading and writing of Parquet files, knowing nothing of tables: one session, asked by the runner.

One command: ``copy``, with ``files``, their ``bytes``, the ``target_bytes`` of what is written, and where to: a new
``folder`` in ``output``.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

from pyspark.sql import SparkSession

from bench.peers.serving import claim_stdout, serve
from bench.peers.spark import arguments, in_session, start, versions


def copy(spark: SparkSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Read files and write their rows into as many as the target size asks for, at least one for each core.

    Files are put together without a shuffle, and written with zstd as Iceberg does.
    """
    cores = spark.sparkContext.defaultParallelism
    outputs = max(cores, ceil(asked["bytes"] / asked["target_bytes"]))
    rows = spark.read.parquet(*asked["files"]).coalesce(outputs)
    rows.write.option("compression", "zstd").parquet(f"{asked['output']}/{asked['folder']}")
    return {"files": outputs}


def main() -> None:
    """Serve the judge until it has no more to ask."""
    asked = arguments("Spark reading and writing Parquet, asked by the runner.").parse_args()
    answers = claim_stdout()
    spark = start(asked)
    serve(answers, {"copy": in_session(spark, copy)}, versions(spark))


if __name__ == "__main__":
    main()
