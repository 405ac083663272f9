"""What is asked of data files by the unit they belong to."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import LongType, NestedField

from producer.model.plan import Scope, SortKey, Strategy
from tests.support.rewriteunit import rewrite_unit
from workers.arrow.schema import arrow_schema
from workers.formats.output_files import OutputFiles

_SCHEMA = Schema(*(NestedField(number, f"c{number}", LongType(), required=False) for number in (1, 2, 3)))


@pytest.mark.parametrize(("strategy", "bounded"), [(Strategy.SORT, {2}), (Strategy.ZORDER, set())])
def test_columns_that_rows_are_sorted_by_keep_bounds(tmp_path: Path, strategy: Strategy, bounded: set[int]) -> None:
    unit = rewrite_unit(
        schema=_SCHEMA,
        strategy=strategy,
        order=(
            SortKey(field_id=2, transform="identity", descending=False, nulls_first=True),
            SortKey(field_id=3, transform="bucket[4]", descending=False, nulls_first=True),
        ),
        zorder=(1,),
        location=load_location_provider(tmp_path.as_uri(), {}),
        journal=f"{tmp_path.as_uri()}/journal",
        properties={"write.metadata.metrics.default": "counts"},
    )
    rows = pa.RecordBatch.from_arrays([pa.array(range(5), pa.int64())] * 3, schema=arrow_schema(_SCHEMA))
    ((partition, written),) = OutputFiles(unit, PyArrowFileIO(), 0, tmp_path, 1 << 20).write(
        Scope(spec_id=0, values=(), label=""), [rows], 10.0, 5
    )
    assert partition == Scope(spec_id=0, values=(), label="")
    assert (written.records, set(written.value_counts)) == (5, {1, 2, 3})
    assert set(written.lower_bounds) == bounded
