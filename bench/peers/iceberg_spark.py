"""Iceberg's own Spark procedures, and Spark SQL on Iceberg tables: one session, asked by the runner.

Runs in the environment of :mod:`bench.peers.environment` and imports nothing of Icefleet. The session's catalog is
Iceberg's JdbcCatalog on the SQLite file that PyIceberg's ``SqlCatalog`` of the same name keeps: both see the same
tables. All is as Iceberg documents it; only caching of tables is off, since others write to them.

    {"do": "rewrite", "table": "bench.t", "options": {"delete-file-threshold": "1"}, "drop_position_deletes": false}
    {"do": "query", "table": "bench.t", "sql": "select count(*) from {table}"}
    {"do": "count", "table": "bench.t"}
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.peers.serving import Idle, claim_stdout, serve
from bench.peers.spark import arguments, in_session, start, versions

#: Properties that have another name in Iceberg's Java implementation.
_JAVA_NAMES = {"s3.region": "client.region"}


def catalog_settings(
    name: str, uri: str, warehouse: str, jars: Path, file_io: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Spark's settings for a catalog.

    Args:
        uri: as PyIceberg has it, ``sqlite:////path/catalog.db``.
        file_io: PyIceberg's properties of an S3 server, if the tables are on one.
    """
    path = uri.removeprefix("sqlite:///")
    if path == uri:
        raise SystemExit(f"--catalog-uri {uri} is not of SQLite: give sqlite:///PATH")
    prefix = f"spark.sql.catalog.{name}"
    return {
        "spark.jars": ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        # Writers of other processes hold SQLite's lock for moments: wait for it instead of failing.
        f"{prefix}.uri": f"jdbc:sqlite:{path}?busy_timeout=30000",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.warehouse": warehouse,
        f"{prefix}.io-impl": f"org.apache.iceberg.{'aws.s3.S3FileIO' if file_io else 'hadoop.HadoopFileIO'}",
        f"{prefix}.cache-enabled": "false",
        "spark.sql.defaultCatalog": name,
        **{f"{prefix}.{_JAVA_NAMES.get(key, key)}": value for key, value in (file_io or {}).items()},
    }


def rewrite(spark: SparkSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """``rewrite_data_files``, and ``rewrite_position_delete_files`` where it is asked for; what they say they did."""
    facts = _call(spark, "rewrite_data_files", asked["table"], asked.get("options", {}))
    if asked.get("drop_position_deletes"):
        facts |= _call(spark, "rewrite_position_delete_files", asked["table"], {"rewrite-all": "true"})
    if not any(facts.values()):
        raise Idle("no files were rewritten")
    return facts


def query(spark: SparkSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of a query in which ``{table}`` stands for the table, and the seconds until they were there."""
    started = time.perf_counter()
    rows = spark.sql(asked["sql"].replace("{table}", _full_name(spark, asked["table"]))).collect()
    return {"seconds": time.perf_counter() - started, "rows": [row.asDict(recursive=True) for row in rows]}


def count(spark: SparkSession, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The number of rows, each of them read."""
    found = query(spark, {"table": asked["table"], "sql": "select count(*) as rows from {table}"})
    return {**found, "rows": found["rows"][0]["rows"]}


def _call(spark: SparkSession, procedure: str, table: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Call one procedure of the catalog.

    Raises:
        RuntimeError: some file groups failed, which the procedure itself only counts.
    """
    pairs = ", ".join(f"'{name}', '{value}'" for name, value in options.items())
    given = f", options => map({pairs})" if pairs else ""
    (row,) = spark.sql(f"CALL system.{procedure}(table => '{_full_name(spark, table)}'{given})").collect()
    facts: dict[str, Any] = row.asDict()
    if failed := facts.get("failed_data_files_count"):
        raise RuntimeError(f"{procedure} failed to rewrite {failed} data files")
    return facts


def _full_name(spark: SparkSession, table: str) -> str:
    """The table's name with its catalog's, which may be called as the namespace is."""
    return f"{spark.catalog.currentCatalog()}.{table}"


def main() -> None:
    """Serve the judge until it has no more to ask."""
    parser = arguments("Iceberg's Spark procedures, asked by the runner.")
    parser.add_argument("--catalog-name", required=True, help="As PyIceberg's catalog is called.")
    parser.add_argument("--catalog-uri", required=True)
    parser.add_argument("--warehouse", required=True)
    parser.add_argument("--jars", type=Path, required=True, help="Folder of Iceberg's runtime and SQLite's driver.")
    parser.add_argument("--file-io", type=json.loads, default={}, help="PyIceberg's properties of an S3 server, JSON.")
    asked = parser.parse_args()
    answers = claim_stdout()
    settings = catalog_settings(asked.catalog_name, asked.catalog_uri, asked.warehouse, asked.jars, asked.file_io)
    spark = start(asked, settings)
    (version,) = spark.sql("SELECT system.iceberg_version() AS iceberg").collect()
    commands = {"rewrite": rewrite, "query": query, "count": count}
    serve(
        answers,
        {name: in_session(spark, work) for name, work in commands.items()},
        versions(spark, iceberg=version["iceberg"]),
    )


if __name__ == "__main__":
    main()
