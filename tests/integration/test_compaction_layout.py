"""How compacted rows lie: in files of the right size, and clustered so that readers skip most of them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType

from tasks.testing import StreamTable
from tests.integration.conftest import Create
from tests.support.compaction import check, compact

pytestmark = pytest.mark.spark

SCHEMA = Schema(
    NestedField(1, "x", LongType(), required=False),
    NestedField(2, "y", StringType(), required=False),
    NestedField(3, "noise", LongType(), required=False),
)
_ROWS = 40_000
KB = 1000


def points(rows: int, seed: int = 0) -> pa.Table:
    """Points of a square in no order: small numbers one way, texts that all begin alike the other."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 10_000, rows)
    return pa.table(
        {
            "x": pa.array(draw.integers(0, 1000, rows)),
            "y": pa.array([f"a long common prefix {value:06d}" for value in y]),
            "noise": pa.array(draw.integers(0, 1 << 62, rows)),
        }
    )


def opened(stream: StreamTable, column: str, low: Any, high: Any) -> int:
    """How many files a reader opens for a range of values."""
    scan = stream.table.scan(row_filter=And(GreaterThanOrEqual(column, low), LessThan(column, high)))
    return len(list(scan.plan_files()))


def skipped(create: Create, options: dict[str, str]) -> tuple[float, float]:
    """The parts of the files that are skipped for a tenth of the values of x, and of y."""
    stream = create(SCHEMA, properties={"write.metadata.metrics.column.y": "full"})
    for part in range(8):
        stream.append(points(_ROWS // 8, part))
    check(stream, {"target-file-size-bytes": str(30 * KB), "rewrite-all": "true", **options}, fixed=False)
    files = len(stream.data_files())
    assert files >= 12
    by_x = np.mean([opened(stream, "x", n * 100, n * 100 + 100) for n in range(10)])
    texts = [f"a long common prefix {n * 1000:06d}" for n in range(11)]
    by_y = np.mean([opened(stream, "y", *pair) for pair in itertools.pairwise(texts)])
    return float(1 - by_x / files), float(1 - by_y / files)


def test_a_z_order_clusters_by_both_columns(create: Create) -> None:
    """A sort by one column lets readers skip for that one alone."""
    sorted_x, sorted_y = skipped(create, {"sort-order": "x"})
    curve_x, curve_y = skipped(create, {"zorder": "x,y"})
    assert sorted_x > 0.8
    assert sorted_y < 0.1
    assert min(curve_x, curve_y) > 0.5


@pytest.mark.parametrize("options", [{}, {"sort-order": "y"}, {"zorder": "x,y"}], ids=["binpack", "sort", "zorder"])
@pytest.mark.parametrize("spec", [None, PartitionSpec(PartitionField(1, 1000, BucketTransform(3), "b"))])
def test_sizes_are_within_the_limits(create: Create, options: dict[str, str], spec: PartitionSpec | None) -> None:
    """Small files are merged, large ones split, and what comes out is not rewritten again."""
    stream = create(SCHEMA, spec=spec) if spec else create(SCHEMA)
    for part in range(10):
        stream.append(points(3000, part))
    stream.append(points(30_000, 99), row_group_size=2000)
    target = 100 * KB
    check(stream, {"target-file-size-bytes": str(target), **options})
    files = stream.data_files()
    assert max(file.size for file in files) <= 1.8 * target
    small = [file.partition_key for file in files if file.size < 0.75 * target]
    assert len(small) == len(set(small)), "one in a partition at most"
    assert len(files) >= 5


def test_row_groups_are_as_large_as_the_table_asks(create: Create) -> None:
    stream = create(SCHEMA, properties={"write.parquet.row-group-size-bytes": str(60 * KB)})
    for part in range(5):
        stream.append(points(4000, part))
    check(stream)
    [file] = stream.data_files()
    footer = pq.read_metadata(file.path.removeprefix("file://"))
    groups = [footer.row_group(n) for n in range(footer.num_row_groups)]
    sizes = [sum(g.column(c).total_compressed_size for c in range(g.num_columns)) for g in groups]
    assert len(sizes) > 2
    assert max(sizes) < 75 * KB


@pytest.mark.parametrize(
    "name", ["page-size-bytes", "page-row-limit", "dict-size-bytes", "row-group-size-bytes", "row-group-limit"]
)
@pytest.mark.parametrize("page_version", ["v1", "v2"])
def test_lists_are_readable_whatever_is_as_small_as_can_be(create: Create, name: str, page_version: str) -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "l", ListType(3, LongType(), element_required=False), required=False),
    )
    named = {name: "1", "page-version": page_version}
    stream = create(schema, properties={f"write.parquet.{name}": value for name, value in named.items()})
    rows = [{"id": 0, "l": [1, 1, 1, 1, 2]}, {"id": 1, "l": None}, {"id": 2, "l": []}, {"id": 3, "l": [7] * 40}]
    for row in rows:
        stream.append(pa.Table.from_pylist([row], schema=pa.schema({"id": pa.int64(), "l": pa.list_(pa.int64())})))
    compact(stream, {"rewrite-all": "true"})
    [file] = stream.data_files()
    read = pq.ParquetFile(file.path.removeprefix("file://")).read().to_pylist()
    assert sorted(read, key=lambda row: row["id"]) == rows


def test_old_specs_are_routed(create: Create, version: int) -> None:
    """Rows of an unpartitioned past, of one that was partitioned otherwise, and of the present."""
    stream = create(SCHEMA, version)
    stream.append(points(500, 1))
    with stream.table.update_spec() as update:
        update.add_field("y", BucketTransform(2), "y2")
    stream.append(points(500, 2))
    with stream.table.update_spec() as update:
        update.remove_field("y2")
        update.add_field("x", BucketTransform(4), "x4")
    stream.append(points(500, 3))
    stream.delete_where_equal(points(20, 1).select(["x", "y"]), ["x", "y"])
    check(stream, {"min-input-files": "2"})
    files = stream.data_files()
    spec = stream.table.spec()
    assert {file.spec_id for file in files} == {spec.spec_id}
    assert sorted(file.partition[0] for file in files) == [0, 1, 2, 3]


def test_another_spec_than_the_tables(create: Create) -> None:
    stream = create(SCHEMA, spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x")))
    rows = points(300)
    stream.append(rows.set_column(0, "x", pa.array([n % 3 for n in range(300)])))
    old = stream.table.spec().spec_id
    with stream.table.update_spec() as update:
        update.remove_field("x")
    for _ in range(5):
        stream.append(rows.set_column(0, "x", pa.array([n % 3 for n in range(300)])))
    check(stream, {"output-spec-id": str(old)})
    assert {(file.spec_id, file.partition[0]) for file in stream.data_files()} == {(old, 0), (old, 1), (old, 2)}


@pytest.mark.parametrize("partitioned_paths", ["true", "false"])
def test_files_merged_from_several_tasks_are_sorted(create: Create, partitioned_paths: str) -> None:
    """Paths in object storage begin with a hash, or names do: neither tells in which order files were written."""
    properties = {"enabled": "true", "partitioned-paths": partitioned_paths}
    stream = create(
        SCHEMA,
        spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x")),
        properties={f"write.object-storage.{name}": value for name, value in properties.items()},
    )
    with stream.table.update_sort_order() as order:
        order.asc("noise", IdentityTransform())
    seventh = pa.array(np.arange(20_000) * 7 // 20_000)  # the rows of some lie across two of four tasks
    for part in range(2):
        stream.append(points(20_000, part).set_column(0, "x", seventh))
    target = sum(file.size for file in stream.data_files()) // 4
    compact(stream, {"strategy": "sort", "rewrite-all": "true", "target-file-size-bytes": str(target)})
    files = stream.data_files()
    assert len(files) == 7
    for file in files:
        assert file.data_file.sort_order_id == stream.table.sort_order().order_id
        noise = pq.read_table(file.path.removeprefix("file://"), partitioning=None)["noise"].to_pylist()
        assert noise == sorted(noise)


def test_groups_and_limits(create: Create) -> None:
    stream = create(SCHEMA)
    for part in range(12):
        stream.append(points(1000, part))
    size = stream.data_files()[0].size
    report = compact(stream, {"max-files-to-rewrite": "6"})
    assert (report.rewritten_data_files, report.added_data_files) == (6, 1)
    stream = create(SCHEMA)
    for part in range(9):
        stream.append(points(1000, part))
    report = compact(stream, {"max-file-group-size-bytes": str(3 * size + 999), "min-input-files": "2"})
    assert (report.rewritten_data_files, report.added_data_files) == (9, 3)
