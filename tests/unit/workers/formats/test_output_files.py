"""What is asked of data files by the unit they belong to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField

from tests.support.rewriteunit import rewrite_unit
from workers.arrow.schema import arrow_schema
from workers.formats.output_files import Files, written_of
from workers.model.rewrite_unit import Arrangement, Partition, SortColumn

_SCHEMA = Schema(*(NestedField(number, f"c{number}", LongType(), required=False) for number in (1, 2, 3)))


@pytest.mark.parametrize(("arrangement", "bounded"), [(Arrangement.SORT, {2}), (Arrangement.ZORDER, set())])
def test_columns_that_rows_are_sorted_by_keep_bounds(
    tmp_path: Path, arrangement: Arrangement, bounded: set[int]
) -> None:
    unit = rewrite_unit(
        schema=_SCHEMA,
        arrangement=arrangement,
        order=(SortColumn(2, IdentityTransform(), False, True), SortColumn(3, BucketTransform(4), False, True)),
        zorder=(1,),
        location=load_location_provider(tmp_path.as_uri(), {}),
        journal=f"{tmp_path.as_uri()}/journal",
        properties={"write.metadata.metrics.default": "counts"},
    )
    rows = pa.RecordBatch.from_arrays([pa.array(range(5), pa.int64())] * 3, schema=arrow_schema(_SCHEMA))
    told = Files(unit, PyArrowFileIO(), 0, tmp_path, 1 << 20).write(Partition((), ""), [rows], 10.0, 5)
    (text,) = told.column(0).to_pylist()
    partition, written = written_of(text)
    assert partition == Partition((), "")
    assert (written.record_count, set(written.value_counts)) == (5, {1, 2, 3})
    assert set(written.lower_bounds) == bounded
