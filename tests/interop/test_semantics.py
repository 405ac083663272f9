"""Which rows an equality delete of Iceberg's own writers removes, and that a conversion removes those and no others."""

from __future__ import annotations

import pytest

from tests.interop.bridge import Bridge, JavaTable, eq, pos
from tests.interop.checks import Convert, check_conversion, check_onward

LETTERS = [[i, letter] for i, letter in enumerate("abcdefg", 1)]
COLUMNS = {"id": "long", "data": "string"}


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def version(request: pytest.FixtureRequest) -> int:
    """The format version."""
    return int(request.param)


@pytest.fixture
def table(bridge: Bridge, warehouse: str, version: int) -> JavaTable:
    """An unpartitioned table."""
    return bridge.create(f"{warehouse}/t", version, COLUMNS)


def test_rows_of_one_file(table: JavaTable, convert: Convert) -> None:
    table.commit(*LETTERS)
    table.commit(deletes=[eq("data", "a", "d", "g", "absent")])
    check_conversion(table, convert, [LETTERS[1], LETTERS[2], LETTERS[4], LETTERS[5]], positions=3)
    check_onward(table)


def test_same_key_in_several_files(table: JavaTable, convert: Convert) -> None:
    table.commit(data=[{"rows": [[i, "x"] for i in range(7)] + [[7, "y"]]}, {"rows": [[i, "x"] for i in range(8)]}])
    table.commit([8, "z"], deletes=[eq("data", "x")])
    report = check_conversion(table, convert, [[7, "y"], [8, "z"]], positions=15)
    assert max(report.added_dvs, report.added_position_delete_files) == 2
    check_onward(table)


def test_null_keys(table: JavaTable, convert: Convert) -> None:
    table.commit([1, "a"], [None, "b"], [3, None], [4, None], [None, None])
    table.commit(deletes=[eq("id", None), eq("id, data", [4, None], [3, "b"])])
    table.commit([None, "again"])
    check_conversion(table, convert, [[1, "a"], [3, None], [None, "again"]], positions=3)
    check_onward(table)


def test_several_sets_of_ids_meet_in_a_row(table: JavaTable, convert: Convert) -> None:
    table.commit(*LETTERS)
    table.commit(deletes=[eq("data", "a", "b"), eq("id", 2, 3), eq("data, id", ["b", 2], ["d", 4], ["e", 1])])
    check_conversion(table, convert, LETTERS[4:], positions=4)


def test_every_copy_meets_its_own_deletes(table: JavaTable, convert: Convert, version: int) -> None:
    """An upsert leaves its own rows alone; a position delete of the same commit does not."""
    (old,) = table.commit([1, "v1"], [2, "v1"], [3, "v1"])
    table.commit([1, "v2"], deletes=[eq("id", 1)])
    table.commit([1, "v3"], [1, "v3 replaced"], [2, "v2"], deletes=[eq("id", 1, 2)], **pos(version, (0, [1])))
    table.commit(deletes=[eq("id", 2)])
    table.commit([2, "v3"])
    (last,) = table.commit([4, "v1"])
    check_conversion(table, convert, [[3, "v1"], [1, "v3"], [2, "v3"], [4, "v1"]], positions=4)
    untouched = [path for path, deletes in table.inspect()["scan"].items() if not deletes]
    assert last in untouched
    assert old not in untouched
    check_onward(table)


def test_deletes_that_match_nothing(table: JavaTable, convert: Convert) -> None:
    table.commit(*LETTERS)
    table.commit(deletes=[eq("id", 0), eq("data", "dd")])
    check_conversion(table, convert, LETTERS, positions=0)
    check_onward(table)


def test_every_row_is_deleted(table: JavaTable, convert: Convert) -> None:
    table.commit(*LETTERS)
    table.commit(deletes=[eq("id", *range(10))])
    check_conversion(table, convert, [], positions=7)
    check_onward(table)


def test_other_columns_of_a_delete_file_are_ignored(table: JavaTable, convert: Convert) -> None:
    table.commit(*LETTERS)
    table.commit(deletes=[eq("id", [1, "a"], [2, "other"], [3, None], written=["id", "data"])])
    check_conversion(table, convert, LETTERS[3:], positions=3)


def test_existing_position_deletes(table: JavaTable, convert: Convert, version: int) -> None:
    """A row that is deleted already gets no second position; a v3 file has one vector, with the old one in it."""
    one, two = table.commit(data=[{"rows": LETTERS}, {"rows": LETTERS}])
    table.commit(**pos(version, (one, [0, 1]), (two, [6])))
    table.commit(deletes=[eq("data", "a", "c")])
    rows = [*LETTERS[3:], LETTERS[1], *LETTERS[3:6]]
    report = check_conversion(table, convert, rows, positions=3)
    if version == 3:
        summary = table.inspect()["summary"]
        assert (report.added_dvs, summary["removed-dvs"], summary["total-position-deletes"]) == (2, "2", "6")
    check_onward(table)


def test_partitions(bridge: Bridge, warehouse: str, version: int, convert: Convert) -> None:
    """A delete reaches its own partition: null, NaN-free floats, and text that a path cannot hold as it stands."""
    table = bridge.create(f"{warehouse}/t", version, {"id": "long", "p": "string", "f": "float"}, "p", "f")
    names = ["a", "b", None, "x/y=ü #?%", ""]
    table.commit(*([i, p, f] for i in (1, 2) for p in names for f in (0.5, None)))
    deletes = [eq("id", 1, partition=[p, 0.5]) for p in names[1:]] + [eq("id, p", [2, None], partition=[None, None])]
    table.commit(deletes=deletes)
    gone = [[1, p, 0.5] for p in names[1:]] + [[2, None, None]]
    rows = [[i, p, f] for i in (1, 2) for p in names for f in (0.5, None) if [i, p, f] not in gone]
    check_conversion(table, convert, rows, positions=5)
    check_onward(table)


def test_keys_without_the_partition_column(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    table = bridge.create(f"{warehouse}/t", version, COLUMNS, "b=bucket[4](id)")
    table.commit(*LETTERS)
    buckets = {e["data_file"]["partition"]["b"] for e in table.inspect()["entries"]}
    table.commit(deletes=[eq("data", "a", "b", "c", partition=[bucket]) for bucket in sorted(buckets)[1:]])
    rows = table.lists()
    assert 4 < len(rows) < 7
    check_conversion(table, convert, rows, positions=7 - len(rows))


def test_large_files(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    """Positions count over the row groups of a file; keys share a long prefix, so that bounds are cut."""
    small = {"write.parquet.row-group-size-bytes": "4096", "write.parquet.row-group-check-min-record-count": "10"}
    table = bridge.create(f"{warehouse}/t", version, COLUMNS, **small)
    rows = [[i, f"the same for every key {i:05d}"] for i in range(5000)]
    table.commit(*rows)
    assert len(table.inspect()["entries"][0]["data_file"]["split_offsets"]) > 3
    gone = {0, 97, 98, 99, 101, 103, 107, 109, *range(1500, 3500, 2), 4999}
    table.commit(deletes=[eq("data", *(rows[i][1] for i in gone))])
    check_conversion(table, convert, [row for row in rows if row[0] not in gone], positions=len(gone))
    check_onward(table)


def test_without_bounds(bridge: Bridge, warehouse: str, convert: Convert, version: int) -> None:
    table = bridge.create(f"{warehouse}/t", version, COLUMNS, **{"write.metadata.metrics.default": "none"})
    table.commit(*LETTERS)
    table.commit(deletes=[eq("data", "c", None)])
    check_conversion(table, convert, LETTERS[:2] + LETTERS[3:], positions=1)


def test_granularity(bridge: Bridge, warehouse: str, convert: Convert) -> None:
    """One position delete file for a partition, when the table asks for that."""
    table = bridge.create(f"{warehouse}/t", 2, COLUMNS, **{"write.delete.granularity": "partition"})
    table.commit(data=[{"rows": LETTERS}, {"rows": LETTERS}, {"rows": LETTERS}])
    table.commit(deletes=[eq("data", "a", "g")])
    report = check_conversion(table, convert, LETTERS[1:6] * 3, positions=6)
    assert report.added_position_delete_files == 1
    check_onward(table)
