"""Real Iceberg tables for tests and demonstrations, written the way streams write them, without Spark.

    catalog = local_catalog(folder)
    events = StreamTable.create(catalog, "db.events", schema)
    events.append(rows)
    events.upsert(newer, ["id"])
    assert read_rows(events.table).num_rows == 3

Files, manifests and metadata are what Flink or Kafka Connect leave behind: Parquet with field ids and full metrics,
equality deletes per partition, position deletes and deletion vectors, one snapshot per commit.
"""

from __future__ import annotations

from tasks.testing.reader import read_rows
from tasks.testing.table import StreamTable, local_catalog, upgrade
from tasks.testing.writer import RowDelta

__all__ = ["RowDelta", "StreamTable", "local_catalog", "read_rows", "upgrade"]
