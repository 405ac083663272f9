"""Random tables compacted in every way: no row changes, nor its lineage, and the same again finds nothing to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.compaction import check
from tests.support.scripts import ScriptedTable, scripts

pytestmark = pytest.mark.spark

#: Every file is small then, and two of them are enough.
_ALWAYS = {"min-input-files": "2", "delete-file-threshold": "1"}


@st.composite
def options(draw: st.DrawFn) -> dict[str, str]:
    """Of a compaction; columns are those that every scripted table has."""
    chosen = dict(_ALWAYS)
    strategy = draw(st.sampled_from(["binpack", "binpack", "sort", "zorder"]))
    chosen["strategy"] = strategy
    if strategy == "sort":
        chosen["sort-order"] = draw(
            st.sampled_from(
                ["value", "part desc nulls last, value", "bucket(3, value), ts", "k0 nulls last, value desc"]
            )
        )
    if strategy == "zorder":
        chosen["zorder"] = draw(st.sampled_from(["value,part", "ts,k0,part"]))
    return chosen


@pytest.mark.timeout(900)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    derandomize=True,
)
@given(script=scripts(), asked=options())
def test_a_compaction_changes_no_row(
    spark: Any, default_catalog: Path, script: dict[str, Any], asked: dict[str, str]
) -> None:
    table = ScriptedTable.played(default_catalog, script)
    # Two small files in the same partition, so that there is something to do.
    for _ in range(2):
        table.play("append", script["steps"][0][1])
    check(table.table, asked, unit_mb=script["unit_mb"], rust=not script["nested"])
