"""Java writes a table, Icefleet compacts it, and Java reads the same rows and goes on from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.interop.bridge import Bridge, JavaError, JavaTable, Type, eq, local, pos
from tests.interop.checks import DATA, assert_same, check_onward, live
from tests.interop.compactions import Compact, check_compacted, check_compaction, rows_of
from tests.interop.test_types import NANOS, VALUES

COLUMNS = {"id": "long", "data": "string"}
both_versions = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])

LIST: dict[str, Any] = {"type": "list", "element-id": 100, "element-required": False}

#: A struct that holds a list of maps, and a map of structs.
NESTED: dict[str, Type] = {
    "s": {
        "type": "struct",
        "fields": [
            {"id": 101, "name": "n", "type": "long", "required": False},
            {"id": 102, "name": "l", "required": False, "type": {
                "type": "list", "element-id": 103, "element-required": False, "element": {
                    "type": "map", "key-id": 104, "key": "string", "value-id": 105, "value": "double",
                    "value-required": False}}},
        ],
    },
    "m": {
        "type": "map", "key-id": 106, "key": "int", "value-id": 107, "value-required": False,
        "value": {"type": "struct", "fields": [
            {"id": 108, "name": "u", "type": "uuid", "required": False},
            {"id": 109, "name": "t", "type": "timestamptz", "required": True},
            {"id": 110, "name": "f", "type": "fixed[2]", "required": False},
        ]},
    },
}  # fmt: skip
NESTED_VALUES: list[list[Any]] = [
    [None, None],
    [[None, None], []],
    [[1, []], [[1, None], [-2, ["00000000-0000-4000-8000-00000000000f", "1969-12-31T23:59:59.999999+00:00", "FF00"]]]],
    [[-1, [None, [], [["", None], ["ä🧊", "NaN"]], [["z", "-0.0"]]]], [[3, [None, "2300-01-01T00:00:00+00:00", None]]]],
]


def types(version: int) -> tuple[dict[str, Type], list[list[Any]]]:
    """Columns of every type, and rows of theirs, nulls among them."""
    values = VALUES | (NANOS if version == 3 else {})
    columns: dict[str, Type] = {"id": "int", "p": "string"}
    columns |= {f"c{number}": type_ for number, type_ in enumerate(values)} | NESTED
    rows = []
    for i in range(24):
        places = [(i + i // 7 + number) % 4 for number in range(len(values))]
        row = [of[place] if place < 3 else None for of, place in zip(values.values(), places, strict=True)]
        rows.append([i, "ab"[i % 2], *row, *NESTED_VALUES[(i + i // 5) % 4]])
    return columns, rows


def written(table: JavaTable, version: int, rows: list[list[Any]]) -> None:
    """Rows in several files of two partitions, of which four are deleted in each way that there is."""
    paths = table.commit(*rows[:12])
    table.commit(*rows[12:])
    table.commit(deletes=[eq("id", rows[4][0], rows[14][0], partition=["a"])])
    table.commit(**pos(version, (paths[0], [0, 1])))


@both_versions
@pytest.mark.parametrize("strategy", ["binpack", "sort", "zorder"])
def test_every_type(bridge: Bridge, warehouse: str, compact: Compact, version: int, strategy: str) -> None:
    columns, rows = types(version)
    table = bridge.create(f"{warehouse}/t", version, columns, "p")
    written(table, version, rows)
    sortable = [name for name in columns if name.startswith("c")]
    asked: dict[str, dict[str, Any]] = {
        "sort": {"sort_order": ", ".join(f"{name} desc nulls last" for name in reversed(sortable))},
        "zorder": {"zorder": sortable[:8] if version == 2 else sortable[8:]},
    }
    assert len(table.lists()) == len(rows) - 4
    report = check_compaction(table, compact, strategy=strategy, **asked.get(strategy, {}))
    assert (report.rewritten_data_files, report.added_data_files) == (4, 2)
    check_onward(table)


@both_versions
def test_transforms(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    """Rows move from one spec to another, and a global delete and one of a partition are applied on the way."""
    columns = {"id": "long", "ts": "timestamptz", "name": "string", "uid": "uuid"}
    table = bridge.create(f"{warehouse}/t", version, columns)
    rows = [
        [i, f"20{24 + i % 2}-0{1 + i % 3}-01T{i % 24:02d}:59:59.999999+00:00", f"näme {i % 5}" if i % 4 else None,
         f"00000000-0000-4000-8000-{i % 7:012d}"]
        for i in range(40)
    ]  # fmt: skip
    table.commit(*rows[:20])
    table.commit(deletes=[eq("id", 3, 7)])
    table.evolve(["partition", "d", "year", "ts"], ["partition", "b", "bucket[3]", "uid"])
    table.commit(*rows[20:])
    partition = next(e["partition"] for e in live(table.inspect(), DATA) if e["partition"]["d"] is not None)
    table.commit(deletes=[eq("name", None, partition=[partition["d"], partition["b"]])])
    table.evolve(["unpartition", "d"], ["partition", "t", "truncate[6]", "name"])
    table.commit(*rows[:2])
    check_compaction(table, compact)
    assert {e["spec_id"] for e in live(table.inspect(), DATA)} == {table.document()["default-spec-id"]}
    check_onward(table)


@both_versions
def test_evolved(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    """Columns were renamed, moved, dropped, promoted and added since, in version 3 with defaults."""
    columns = {"id": "int", "data": "string", "gone": "int", "d": "decimal(9, 2)", "f": "float"}
    table = bridge.create(f"{warehouse}/t", version, columns)
    table.commit([1, "a", 1, "1.50", 0.1], [2, None, None, None, None], [3, "c", 3, "-1.00", "NaN"])
    default = ["add", "kind", "string", "old"] if version == 3 else ["add", "kind", "string"]
    table.evolve(["rename", "data", "text"], ["first", "f"], ["drop", "gone"], default, ["add", "gone", "string"])
    table.evolve(["promote", "id", "long"], ["promote", "d", "decimal(38, 2)"], ["promote", "f", "double"])
    table.commit([0.1, 5_000_000_000, "e", "123456789012345678901234.25", None, "x"])
    table.commit(deletes=[eq("id", 3)])
    check_compaction(table, compact, strategy="sort", sort_order="kind, d desc")
    check_onward(table)


@both_versions
def test_added_struct(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    """Older rows are null in a struct that was added, although the fields of it may be required."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    table.commit([1, "a"], [2, "b"])
    required = {"type": "struct", "fields": [{"id": 11, "name": "n", "type": "long", "required": True}]}
    table.evolve(["add", "s", required], ["add", "l", {**LIST, "element": required}])
    table.commit([3, "c", [3], [[4], None]], [4, "d", None, None])
    check_compaction(table, compact)
    check_onward(table)


def test_upgraded(bridge: Bridge, warehouse: str, compact: Compact) -> None:
    """The compaction is the first snapshot of version 3: rows from before get their ids by it, and keep them then."""
    table = bridge.create(f"{warehouse}/t", 2, COLUMNS)
    one, two = table.commit(data=[{"rows": [[1, "a"], [2, "b"]]}, {"rows": [[3, "c"], [4, "d"]]}])
    table.commit(**pos(2, (one, [0]), (two, [1])))
    table.commit([5, "e"], deletes=[eq("id", 2)])
    table.evolve(["set", "format-version", "3"])
    rows = table.rows()
    assert str(compact(table, options={"rewrite-all": "true"}).status) == "committed"
    assert_same(table.rows(), rows)
    check_compacted(table, 3)
    table.commit([6, "f"], deletes=[eq("id", 5)])
    ids = [row[2] for row in table.lists(lineage=True)]
    assert None not in ids
    assert len(set(ids)) == len(ids) == 2
    check_compaction(table, compact, numbered=False)
    check_onward(table)


@both_versions
def test_java_writes_on(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    """What Java deletes in compacted files is deleted, and the next compaction applies it."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string"}, "p")
    for start in range(0, 12, 4):
        table.commit(*([i, "a"] for i in range(start, start + 4)))
    table.commit([12, "b"], deletes=[eq("id", 0, partition=["a"])])
    check_compaction(table, compact, strategy="sort", sort_order="id")
    (path,) = (entry["file_path"] for entry in live(table.inspect(), DATA) if entry["partition"]["p"] == "a")
    planned = table.metadata
    table.commit([4, "a"], deletes=[eq("id", 4, 12, partition=["a"])])
    table.commit(**pos(version, (path, [0, 1])))
    rows: list[list[Any]] = [[4, "a"], *([i, "a"] for i in (3, 5, 6, 7, 8, 9, 10, 11)), [12, "b"]]
    assert sorted(table.lists()) == sorted(rows)
    with pytest.raises(JavaError, match="found new"):
        table.compact(planned)
    check_compaction(table, compact)
    assert sorted(table.lists()) == sorted(rows)
    planned = table.metadata
    table.commit(deletes=[eq("id", 5, partition=["a"])])
    table.compact(planned)  # as old as what it read: the delete reaches its output too
    assert [5, "a"] not in table.lists()
    check_compaction(table, compact, numbered=False)
    check_onward(table)


@both_versions
def test_every_row_is_deleted(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    (path,) = table.commit([1, "a"], [2, "b"])
    table.commit(**pos(version, (path, [0])))
    table.commit(deletes=[eq("id", 1, 2, 3)])
    report = check_compaction(table, compact, options={"rewrite-all": "true"})
    assert report.added_data_files == 0
    table.commit([1, "again"])
    assert table.lists() == [[1, "again"]]
    check_onward(table)


@both_versions
def test_expired(bridge: Bridge, warehouse: str, compact: Compact, version: int) -> None:
    """Java deletes the files that the compaction replaced, and nothing that is live."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    old = table.commit(data=[{"rows": [[1, "a"], [2, "b"]]}, {"rows": [[3, "c"]]}])
    table.commit([4, "d"], deletes=[eq("id", 1)], **pos(version, (old[1], [0])))
    check_compaction(table, compact)
    table.commit([5, "e"])  # Java deletes a file when the snapshot that removed it expires
    kept = rows_of(table)
    table.expire()
    assert_same(rows_of(table), kept)
    assert not [path for path in old if Path(local(path)).exists()]
