"""Random tables, written the way streams write them: a conversion changes no row, whatever came before it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyiceberg.manifest import DataFileContent

from producer.common.settings import Settings
from producer.model.job import Request, Status
from tasks.local import LocalEngine
from tasks.testing import StreamTable, read_rows
from tests.support import oracle
from tests.support.scripts import ScriptedTable, scripts
from tests.support.unreferenced import unreferenced

pytestmark = pytest.mark.spark


@pytest.mark.timeout(900)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    derandomize=True,
)
@given(script=scripts())
def test_a_conversion_changes_no_row(spark: Any, default_catalog: Path, script: dict[str, Any]) -> None:
    _check(ScriptedTable.played(default_catalog, script).table, Settings(unit_mb=script["unit_mb"]))


def _check(stream: StreamTable, settings: Settings) -> None:
    before = oracle.rows(stream.table)
    had = any(file.content == DataFileContent.EQUALITY_DELETES for file in stream.files())

    report = LocalEngine(settings).run(Request.new(stream.identifier))

    assert report.status is (Status.COMMITTED if had else Status.NOTHING_TO_DO), report
    after = stream.table
    live = stream.files()
    assert oracle.rows(after) == before
    assert not [file for file in live if file.content == DataFileContent.EQUALITY_DELETES]
    assert _readable(read_rows(after)) == _readable_rows(before)
    if after.metadata.format_version == 2:  # PyIceberg could not even plan this before
        assert after.scan().to_arrow().num_rows == sum(before.values())
    _check_deletes(live, after.metadata.format_version)
    assert not unreferenced(after, metadata_files=False)

    location = after.metadata_location
    assert LocalEngine(settings).run(Request.new(stream.identifier)).status is Status.NOTHING_TO_DO
    assert stream.table.metadata_location == location


def _check_deletes(live: list[Any], version: int) -> None:
    """Every delete lies in the partition of what it deletes, and a file has one vector at most."""
    data = {file.path: file for file in live if file.content == DataFileContent.DATA}
    vectors = Counter(file.referenced_data_file for file in live if file.is_vector)
    assert not vectors or (version >= 3 and max(vectors.values()) == 1)
    for file in live:
        target = data.get(file.referenced_data_file)
        if file.content == DataFileContent.POSITION_DELETES and target is not None:
            assert file.partition_key == target.partition_key


def _readable(rows: pa.Table) -> Counter[Any]:
    """The serial numbers of the rows: they tell every row from every other."""
    return Counter(rows["value"].to_pylist())


def _readable_rows(rows: Counter[Any]) -> Counter[Any]:
    return Counter(row[-1] for row in rows.elements())
