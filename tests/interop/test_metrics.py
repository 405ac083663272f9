"""The metrics of data files that Icefleet writes, beside those that Java keeps of the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable

from tests.interop.bridge import Bridge, Type
from tests.interop.test_types import NANOS, VALUES
from workers.formats.parquet.data_file_writer import ParquetDataFileWriter
from workers.formats.row_reader import RowReader
from workers.model.delete_set import ContentFile, FileSplit

NESTED: dict[str, Type] = {
    "type": "struct",
    "fields": [
        {"id": 101, "name": "n", "type": "long", "required": False},
        {"id": 102, "name": "s", "type": "string", "required": False},
    ],
}
LISTED: Type = {"type": "list", "element-id": 103, "element": "long", "element-required": False}


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"write.metadata.metrics.default": "full"},
        {"write.metadata.metrics.default": "counts", "write.metadata.metrics.column.nested.s": "truncate(2)"},
        {"write.metadata.metrics.max-inferred-column-defaults": "5"},
        {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.listed.element": "counts"},
    ],
    ids=["default", "full", "one-column", "few", "sizes-of-a-list"],
)
def test_metrics_are_those_of_java(bridge: Bridge, warehouse: str, tmp_path: Path, properties: dict[str, str]) -> None:
    values = VALUES | NANOS
    columns: dict[str, Type] = {f"c{number}": type_ for number, type_ in enumerate(values)}
    columns |= {"listed": LISTED, "nested": NESTED, "nan": "double"}
    table = bridge.create(f"{warehouse}/t", 3, columns, **properties)
    rows: list[list[Any]] = [list(row) for row in zip(*values.values(), strict=True)]
    rows.append([None] * len(values))
    more = [
        [[1, None], [1, "z" * 20], 1.5],
        [None, None, "NaN"],
        [[], [None, ""], None],
        [[7], None, None],
    ]
    table.commit(*(row + rest for row, rest in zip(rows, more, strict=True)))

    read = StaticTable.from_metadata(table.metadata)
    (task,) = read.scan().plan_files()
    java, io, schema = task.file, PyArrowFileIO(), read.schema()
    source = ContentFile(0, java.file_path, 1, 0, java.record_count, java.file_size_in_bytes)
    batches = list(RowReader(io, schema, None, 1 << 20).read(FileSplit(source)))
    with ParquetDataFileWriter(io, str(tmp_path / "a.parquet"), schema, read.properties) as writer:
        writer.write(pa.Table.from_batches(batches))
        ours = writer.close()
    counted = properties.get("write.metadata.metrics.default", "full") != "none"
    assert (ours.null_value_counts != {}) == (len(ours.upper_bounds) > 0) == counted
    for name in ("value_counts", "null_value_counts", "nan_value_counts"):
        assert getattr(ours, name) == (getattr(java, name) or {}), name
    for name in ("lower_bounds", "upper_bounds"):
        expected = {field_id: bound.hex() for field_id, bound in (getattr(java, name) or {}).items()}
        assert getattr(ours, name) == expected, name
    assert set(ours.column_sizes) == set(java.column_sizes or {})


def test_files_are_no_larger_than_those_of_java(bridge: Bridge, warehouse: str, tmp_path: Path) -> None:
    """Both at the usual codec and level; at Arrow's own level of zstd the text takes a tenth more."""
    words = ["furiously", "carefully", "regular", "accounts", "deposits", "sleep", "final", "requests", "above", "the"]
    draw = random.Random(5)
    columns: dict[str, Type] = {"id": "long", "text": "string"}
    table = bridge.create(f"{warehouse}/sizes", 2, columns)
    table.commit(*([number, " ".join(draw.choices(words, k=5)) + f" {number}"] for number in range(30_000)))
    read = StaticTable.from_metadata(table.metadata)
    (task,) = read.scan().plan_files()
    java, io, schema = task.file, PyArrowFileIO(), read.schema()
    source = ContentFile(0, java.file_path, 1, 0, java.record_count, java.file_size_in_bytes)
    rows = pa.Table.from_batches(RowReader(io, schema, None, 8 << 20).read(FileSplit(source)))
    with ParquetDataFileWriter(io, str(tmp_path / "f"), schema, read.metadata.properties) as writer:
        writer.write(rows)
        size = writer.close().size
    assert size < 1.02 * java.file_size_in_bytes
