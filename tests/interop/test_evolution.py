"""Tables whose schema or partition spec changed between their data files and the equality deletes."""

from __future__ import annotations

import json

import pytest

from tests.interop.bridge import Bridge, JavaError, eq, pos
from tests.interop.checks import Convert, check_conversion, check_onward, live

COLUMNS = {"id": "long", "data": "string"}
both_versions = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@both_versions
def test_renamed_moved_and_added_columns(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Columns are found by id; one that a data file has not is null there."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "data": "string", "kind": "string"})
    table.commit([1, "a", "x"], [2, "b", "x"], [3, "c", None])
    table.commit(deletes=[eq("data", "a")])
    table.evolve(["rename", "data", "kind2"], ["rename", "kind", "data"], ["first", "data"], ["add", "more", "int"])
    table.commit(["y", 4, "a", 1], ["y", 5, "b", None])
    table.commit(deletes=[eq("more, kind2", [None, "b"]), eq("data", None)])
    table.commit([None, 6, "b", None])
    check_conversion(table, convert, [["y", 4, "a", 1], [None, 6, "b", None]], positions=4)
    check_onward(table)


@both_versions
def test_dropped_key_column(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """A delete still counts after its column is dropped, although Java cannot read the table then."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "status": "string", "data": "string"})
    table.commit([1, "gone", "a"], [2, "kept", "b"], [3, None, "c"])
    table.commit(deletes=[eq("status", "gone")])
    table.evolve(["drop", "status"], ["add", "status", "string"])
    table.commit([4, "d", "gone"])
    with pytest.raises(JavaError, match="Cannot find required field for ID 2"):
        table.rows()
    rows = [[2, "b", None], [3, "c", None], [4, "d", "gone"]]
    check_conversion(table, convert, rows, positions=1, readable=False)
    check_onward(table)


@both_versions
def test_promoted_key_columns(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    columns = {"id": "int", "price": "decimal(9, 2)", "ratio": "float", "wide": "decimal(18, 2)"}
    table = bridge.create(f"{warehouse}/t", version, columns)
    old = [[i, f"{i}.50", i / 4, f"{i}.25"] for i in range(1, 9)]
    table.commit(*old)
    table.commit(deletes=[eq("id", 1), eq("price", "2.50"), eq("ratio", 0.75), eq("wide", "4.25")])
    promotions = {"id": "long", "price": "decimal(18, 2)", "ratio": "double", "wide": "decimal(38, 2)"}
    table.evolve(*(["promote", name, type_] for name, type_ in promotions.items()))
    new = [[5_000_000_000, "1234567890123.50", 0.1, "123456789012345678901234.25"], [9, "9.50", 2.25, "9.25"]]
    table.commit(*new)
    table.commit(deletes=[eq("id", 5), eq("price", "6.50"), eq("ratio", 1.75, 0.1), eq("wide", "8.25")])
    check_conversion(table, convert, [new[1]], positions=9)
    check_onward(table)


def test_initial_default(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """Rows from before a column was added have its initial default, for deletes too."""
    table = bridge.create(f"{warehouse}/t", 3, COLUMNS)
    table.commit([1, "a"], [2, "b"])
    table.evolve(["add", "kind", "string", "old"], ["add", "n", "int", 7])
    table.commit([3, "c", "old", 1], [4, "d", None, 7], [5, "e", "new", 2])
    table.commit(deletes=[eq("kind", None), eq("kind, id", ["old", 1]), eq("n, data", [7, "a"], [7, "x"], [2, "e"])])
    check_conversion(table, convert, [[2, "b", "old", 7], [3, "c", "old", 1]], positions=3)
    table.commit(deletes=[eq("kind", "old")])
    check_conversion(table, convert, [], positions=2)
    check_onward(table)


@both_versions
def test_partitioned_later(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """A delete from when the table was not partitioned is global; one from a partition stays in its spec."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string"})
    table.commit([1, "a"], [2, "a"], [3, "b"])
    table.evolve(["partition", "p", "identity", "p"])
    table.commit([1, "a"], [2, "b"], [3, None], [4, "b"])
    table.commit(deletes=[eq("id", 1, spec=0), eq("id", 2, partition=["b"]), eq("id", 3, partition=[None])])
    table.commit([1, "a"])
    rows = [[2, "a"], [3, "b"], [4, "b"], [1, "a"]]
    check_conversion(table, convert, rows, positions=4)
    assert {entry["spec_id"] for entry in live(table.inspect(), 1)} == {0, 1}
    check_onward(table)


@both_versions
def test_global_delete_stays_until_all_is_done(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """With a filter a partition's deletes become positions, and the global delete stays for the others."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string"}, "p")
    table.commit([1, "a"], [2, "a"], [1, "b"], [2, "b"])
    table.evolve(["unpartition", "p"])
    table.commit(deletes=[eq("id", 1)])
    table.evolve(["partition", "p", "identity", "p"])
    table.commit([3, "a"], [3, "b"])
    table.commit(deletes=[eq("id", 3, partition=["a"]), eq("id", 3, partition=["b"])])
    rows = [[2, "a"], [2, "b"]]
    check_conversion(table, convert, rows, positions=2, remaining=2, where="p = 'a'")
    check_conversion(table, convert, rows, positions=2)
    check_onward(table)


@both_versions
def test_transforms_of_several_specs(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    columns = {"id": "long", "ts": "timestamptz", "name": "string", "day": "date", "uid": "uuid"}
    table = bridge.create(f"{warehouse}/t", version, columns, "d=day(ts)", "b=bucket[3](uid)")
    rows = [
        [i, f"20{24 + i % 2}-0{1 + i % 3}-01T{i % 24:02d}:59:59.999999+00:00", f"näme {i % 5}", f"1969-12-{30 + i % 2}",
         f"00000000-0000-4000-8000-{i % 7:012d}"]
        for i in range(60)
    ]  # fmt: skip
    table.commit(*rows[:20])
    table.evolve(["unpartition", "d"], ["unpartition", "b"], ["partition", "h", "hour", "ts"])
    table.commit(*rows[20:40])
    table.evolve(["unpartition", "h"], ["partition", "t", "truncate[3]", "name"], ["partition", "m", "month", "day"])
    table.commit(*rows[40:])
    tuples = {(e["spec_id"], tuple(e["partition"].items())) for e in live(table.inspect(), 0)}
    specs = {spec for spec, _ in tuples}
    assert len(specs) == 3
    # Each partition gets a delete of a third of the ids.
    deletes = [
        eq("id", *range(number % 3, 60, 3), spec=spec, partition=[dict(values)[n] for n in table.partition_names(spec)])
        for number, (spec, values) in enumerate(sorted(tuples, key=str))
    ]
    table.commit(deletes=deletes)
    left = table.lists()
    assert 0 < len(left) < 60
    check_conversion(table, convert, left, positions=60 - len(left))
    assert {entry["spec_id"] for entry in live(table.inspect(), 1)} == specs
    check_onward(table)


@both_versions
def test_partition_column_is_dropped(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Files stay under a spec whose source column the current schema no longer has."""
    columns = {"id": "long", "p": "string", "data": "string"}
    table = bridge.create(f"{warehouse}/t", version, columns, "p", "b=bucket[2](p)")
    table.commit([1, "x", "a"], [2, "x", "b"], [1, "y", "a"], [2, None, "b"])
    partitions = {tuple(e["partition"].values()) for e in live(table.inspect(), 0)}
    table.commit(deletes=[eq("id", 1, partition=list(p)) for p in sorted(partitions, key=str) if p[0] != "y"])
    table.evolve(["unpartition", "p"], ["unpartition", "b"], ["drop", "p"])
    rows = table.lists()
    assert rows == [[2, "b"], [1, "a"], [2, "b"]] or len(rows) == 3
    check_conversion(table, convert, rows, positions=1)


@both_versions
def test_table_that_was_version_1(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Files have sequence number 0, and a spec whose fields are all void counts as unpartitioned."""
    table = bridge.create(f"{warehouse}/t", 1, {"id": "long", "p": "string"}, "p")
    table.commit([1, "a"], [2, "a"], [1, "b"])
    table.evolve(["unpartition", "p"])
    table.commit([1, "c"], [3, "c"])
    table.evolve(["set", "format-version", str(version)])
    table.commit(deletes=[eq("id", 1, partition=[None])])
    check_conversion(table, convert, [[2, "a"], [3, "c"]], positions=3)
    check_onward(table)


def test_upgrade_with_position_deletes(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """A table that was version 2: its position deletes become part of the vectors and leave the table."""
    table = bridge.create(f"{warehouse}/t", 2, COLUMNS)
    rows = [[i, "x"] for i in range(6)]
    one, two, three = table.commit(data=[{"rows": rows}, {"rows": rows}, {"rows": rows}])
    table.commit(**pos(2, (one, [0]), (two, [1])))  # about two files
    table.commit(**pos(2, (three, [5])))
    table.evolve(["set", "format-version", "3"])
    table.commit(deletes=[eq("id", 2, 5)])
    table.commit([7, "new"])
    left = [rows[i] for i in (1, 3, 4, 0, 3, 4, 0, 1, 3, 4)]
    check_conversion(table, convert, [*left, [7, "new"]], positions=5)
    found = live(table.inspect(), 1)
    assert [entry["file_format"] for entry in found] == ["PUFFIN"] * 3
    assert sorted(entry["record_count"] for entry in found) == [2, 3, 3]
    check_onward(table)


def test_upgrade_right_before(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """The conversion is the first snapshot of version 3: it gives the old rows their ids."""
    table = bridge.create(f"{warehouse}/t", 2, COLUMNS)
    table.commit([1, "a"], [2, "b"])
    table.commit([3, "c"], deletes=[eq("id", 1)])
    table.evolve(["set", "format-version", "3"])
    check_conversion(table, convert, [[2, "b"], [3, "c"]], positions=1, numbered=False)
    table.commit([4, "d"], deletes=[eq("id", 2)])
    check_conversion(table, convert, [[3, "c"], [4, "d"]], positions=1)
    ids = [json.loads(row)[2] for row in table.rows(lineage=True)]
    assert None not in ids
    assert len(set(ids)) == 2
    check_onward(table)
