"""A column that a data file lacks and whose partition is null, as migrated files have it: null, not its default."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tasks.testing import StreamTable
from tests.interop.bridge import Bridge
from tests.support import oracle
from tests.support.livefiles import spec


def test_a_null_partition_is_null_and_no_default(bridge: Bridge, tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "p", StringType(), required=False),
    )
    catalog = InMemoryCatalog("default", warehouse=f"file://{tmp_path}")
    stream = StreamTable.create(catalog, "db.t", schema, spec=spec(0, (2, IdentityTransform(), "p")), format_version=3)
    for number, p in enumerate([None, "y"]):
        stream.append(pa.table({"id": pa.array([number], pa.int64()), "p": pa.array([p])}), omit=["p"])
    path = Path(stream.table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    for schema_ in document["schemas"]:
        schema_["fields"][1]["initial-default"] = "x"
    path.write_text(json.dumps(document))
    assert stream.table.schema().find_field("p").initial_default == "x"
    rows = bridge.call("read", metadata=stream.table.metadata_location)["rows"]
    assert sorted(rows) == [[0, None], [1, "y"]]
    assert oracle.rows(stream.table) == {(0, None): 1, (1, "y"): 1}
    catalog.close()
