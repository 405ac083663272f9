"""Icefleet beside Java writers: on their branches, on top of their vectors, and they on top of its snapshots."""

from __future__ import annotations

import pytest

from tests.interop.bridge import Bridge, JavaError, eq, pos
from tests.interop.checks import Convert, check_conversion, check_deletes, check_metadata, check_onward, live

COLUMNS = {"id": "long", "data": "string"}
ROWS = [[i, "x"] for i in range(8)]
both_versions = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@both_versions
def test_java_writes_on(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """A stream goes on after a conversion, and the next conversion goes on after the stream."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string"}, "p")
    (first,) = table.commit(*([i, "a"] for i in range(6)))
    table.commit(deletes=[eq("id", 0, partition=["a"])])
    check_conversion(table, convert, [[i, "a"] for i in range(1, 6)], positions=1)
    table.commit(**pos(version, (first, [1])))  # Java merges a vector of Icefleet's into its own
    assert table.lists() == [[i, "a"] for i in range(2, 6)]
    table.commit([6, "a"], [7, "b"], deletes=[eq("id", 2, 6, partition=["a"]), eq("id", 7, partition=["b"])])
    rows = [[3, "a"], [4, "a"], [5, "a"], [6, "a"], [7, "b"]]
    check_conversion(table, convert, rows, positions=1)
    check_metadata(table.inspect())
    if version == 3:
        (vector,) = live(table.inspect(), 1)
        assert vector["record_count"] == 3
    check_onward(table)


@both_versions
@pytest.mark.parametrize("known", [True, False], ids=["delete-before-plan", "delete-after-plan"])
def test_java_compaction_does_not_bring_rows_back(
    bridge: Bridge, warehouse: str, convert: Convert, version: int, known: bool
) -> None:
    """One that was planned before the conversion is rejected, whether or not it knew of the equality delete."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    table.commit(*ROWS)
    planned = table.metadata
    table.commit(deletes=[eq("id", 1, 2)])
    planned = table.metadata if known else planned
    check_conversion(table, convert, [ROWS[0], *ROWS[3:]], positions=2)
    with pytest.raises(JavaError, match=r"found new (position )?delete"):
        table.compact(planned)
    check_onward(table)


@both_versions
def test_compaction_under_an_older_number(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Java compacts while deletes come in; its outputs keep the older number, and the deletes reach them."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    for row in ROWS[:7]:
        table.commit(row)
    planned = table.metadata
    table.commit(ROWS[7])  # or Java would drop the delete: it does not look at what its compaction adds
    table.commit(deletes=[eq("id", 3, 4)])
    table.commit([3, "again"])
    table.compact(planned)
    check_conversion(table, convert, [*ROWS[:3], *ROWS[5:], [3, "again"]], positions=2)
    check_onward(table)


@both_versions
def test_branch(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """A branch is converted, and main is left alone."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    table.commit(*ROWS)
    table.commit(deletes=[eq("id", 0)])
    main = table.inspect()
    table.evolve(["branch", "audit"])
    table.commit([9, "y"], branch="audit", deletes=[eq("id", 7)])
    check_conversion(table, convert, [*ROWS[1:7], [9, "y"]], positions=2, branch="audit")
    assert table.inspect() == main
    assert table.lists() == ROWS[1:]
    check_conversion(table, convert, ROWS[1:], positions=1)
    assert len(table.lists()) == 7
    check_deletes(table, table.inspect("audit"))


@both_versions
def test_other_formats_are_refused_by_name(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Partitions with Avro or ORC files are left as they are, and the others are converted."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string"}, "p")
    table.commit([1, "a"], [2, "a"], [1, "c"], [2, "c"])
    (avro,) = table.commit(data=[{"rows": [[1, "b"], [2, "b"]], "format": "avro"}])
    deletes = [eq("id", 1, partition=["a"]), eq("id", 1, partition=["b"]), eq("id", 1, partition=["c"], format="orc")]
    table.commit(deletes=deletes)
    rows = [[2, "a"], [2, "b"], [2, "c"]]
    report = check_conversion(table, convert, rows, positions=1, status="partial", remaining=2)
    assert report.failed_units == 2
    reasons = " ".join(failure.reason for failure in report.failures)
    assert avro in reasons
    assert ".orc" in reasons


def test_identifier_columns_and_plain_paths(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """Required keys, object-store layout and locations without a scheme: as Flink's upserts are often set up."""
    layout = {"write.object-storage.enabled": "true", "write.delete.parquet.compression-codec": "gzip"}
    location = warehouse.removeprefix("file:") + "/with space"
    table = bridge.create(location, 2, COLUMNS, required=["id"], **layout)
    paths = table.commit(*ROWS)
    assert paths[0].startswith("/")
    table.commit([1, "y"], deletes=[eq("id", 1, 5)])
    check_conversion(table, convert, [ROWS[0], *ROWS[2:5], *ROWS[6:], [1, "y"]], positions=2)
    check_onward(table)
