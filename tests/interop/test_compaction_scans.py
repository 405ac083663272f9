"""What Java's scans leave out by the metrics and footers of compacted files, which must be no row that matches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.interop.bridge import Bridge, Filter, bag
from tests.interop.checks import DATA, assert_same, live
from tests.interop.compactions import Compact, check_compaction
from tests.interop.test_compaction import types
from tests.interop.test_types import NANOS, VALUES


def filters(version: int) -> list[Filter]:
    """Some of each kind for the columns of :func:`tests.interop.test_compaction.types`."""
    found: list[Filter] = [{"type": "eq", "term": "s.n", "value": 1}, {"type": "not-null", "term": "s.n"}]
    for number, (type_, values) in enumerate((VALUES | (NANOS if version == 3 else {})).items()):
        on: dict[str, Any] = {"term": f"c{number}", "text": type_.endswith("_ns")}
        found += [{**on, "type": kind} for kind in ("is-null", "not-null")]
        found += [{**on, "type": "eq", "value": value} for value in values if value is not None]
        if type_ != "boolean":
            of_values = [{**on, "type": kind, "value": values[1]} for kind in ("lt", "lt-eq", "gt", "gt-eq")]
            of_values += [{**on, "type": kind, "values": values[:2]} for kind in ("in", "not-in")]
            # Of nulls Java says this to a scan and that to a row.
            there = {**on, "type": "not-null"}
            found += [{"type": "and", "left": there, "right": one, "text": on["text"]} for one in of_values]
        if type_ == "string":
            starts = (values[2][:1], values[2][:15], values[2])
            found += [{**on, "type": "starts-with", "value": value} for value in starts]
        if type_ in ("float", "double"):
            found += [{**on, "type": kind} for kind in ("is-nan", "not-nan")]
    return found


@pytest.mark.parametrize(("version", "strategy"), [(2, "binpack"), (3, "sort")], ids=["v2-binpack", "v3-sort"])
def test_every_type(bridge: Bridge, warehouse: str, compact: Compact, version: int, strategy: str) -> None:
    columns, rows = types(version)
    table = bridge.create(f"{warehouse}/t", version, columns, "p")
    table.commit(*rows[:12])
    table.commit(*rows[12:])
    table.commit(*([None] * len(columns) for _ in range(2)))
    sorting: dict[str, Any] = {"sort_order": "c11, c0"} if strategy == "sort" else {}
    check_compaction(table, compact, strategy=strategy, **sorting)
    asked = filters(version)
    answers = table.select(*asked)
    assert len({json.dumps(found["all"]) for found in answers}) > 20
    for filter_, found in zip(asked, answers, strict=True):
        assert (filter_, bag(found["pruned"])) == (filter_, bag(found["all"]))
    assert {found["files"] for found in answers} >= {2, 3}


@pytest.mark.parametrize("strategy", ["sort", "zorder"])
def test_what_is_skipped(bridge: Bridge, warehouse: str, compact: Compact, strategy: str) -> None:
    """Files of a table in order hold ranges, so that most are not opened; their long texts agree in their bounds."""
    table = bridge.create(f"{warehouse}/t", 3, {"id": "long", "name": "string", "f": "double"})
    rows = [[i * 7919 % 4000, f"a prefix that is cut {i * 104729 % 4000:05d}", i / 3] for i in range(4000)]
    for start in range(0, 4000, 1000):
        table.commit(*rows[start : start + 1000])
    options = {"rewrite-all": "true", "target-file-size-bytes": "4000b", "max-file-size-bytes": "8000b"}
    asked: dict[str, dict[str, Any]] = {"sort": {"sort_order": "id"}, "zorder": {"zorder": ["id", "f"]}}
    compact(table, strategy=strategy, options=options, **asked[strategy])
    of = len(live(table.inspect(), DATA))
    assert of > 3
    kinds = [
        ("eq", "id", 1234),
        ("lt", "id", 300),
        ("gt-eq", "id", 3900),
        ("eq", "name", rows[99][1]),
        ("lt", "f", 9.5),
    ]
    found = table.select(*({"type": kind, "term": term, "value": value} for kind, term, value in kinds))
    for one in found:
        assert one["all"]
        assert_same(bag(one["pruned"]), bag(one["all"]))
    assert max(one["files"] for one in found[:3]) < of
    assert strategy == "sort" or found[4]["files"] < of
