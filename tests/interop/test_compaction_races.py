"""Java commits after Icefleet has staged a compaction and before it is committed; and the other way round."""

from __future__ import annotations

import pytest

from tests.interop.bridge import Bridge, JavaError, JavaTable, eq, pos
from tests.interop.checks import DATA, EQUALITY_DELETES, Convert, assert_same, check_onward, live
from tests.interop.compactions import Compact, check_compaction, race, rows_of

COLUMNS = {"id": "long", "data": "string", "p": "string"}
IN_A = {"type": "eq", "term": "p", "value": "a"}
pytestmark = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@pytest.fixture
def table(bridge: Bridge, warehouse: str, version: int) -> JavaTable:
    """Ids 0 to 7 in two files of one partition and 8 to 11 in two of another; 1 and 5 are deleted by key."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS, "p")
    rows = [[i, "x", "a" if i < 8 else "b"] for i in range(12)]
    table.commit(data=[{"rows": rows[:4] + rows[8:10]}, {"rows": rows[4:8] + rows[10:]}])
    table.commit(deletes=[eq("id", 1, 5, partition=["a"])])
    return table


def first_of_a(table: JavaTable) -> str:
    """One of the files of the first partition."""
    return str(min(e["file_path"] for e in live(table.inspect(), DATA) if e["partition"]["p"] == "a"))


def test_append(table: JavaTable, compact: Compact) -> None:
    race(table, compact, lambda raced: raced.commit([1, "again", "a"]))
    assert not live(table.inspect(), EQUALITY_DELETES)
    check_onward(table)


def test_upsert(table: JavaTable, compact: Compact) -> None:
    """A key of a compacted file stays deleted, a row of the same commit stays."""
    race(table, compact, lambda raced: raced.commit([2, "y", "a"], deletes=[eq("id", 2, 3, partition=["a"])]))
    ids = sorted(row[0] for row in table.lists())
    assert ids == [0, 2, 4, 6, 7, 8, 9, 10, 11]
    assert len(live(table.inspect(), EQUALITY_DELETES)) == 1
    check_compaction(table, compact)
    check_onward(table)


def test_positions_of_an_input(table: JavaTable, compact: Compact, version: int) -> None:
    """What was staged holds a row that is deleted now: it is planned again."""
    race(table, compact, lambda raced: raced.commit(**pos(version, (first_of_a(raced), [2]))), rounds=2)
    assert len(table.lists()) == 9
    check_onward(table)


def test_compaction_of_an_input(table: JavaTable, compact: Compact) -> None:
    """Java was faster in one partition; the other one is planned again."""
    race(table, compact, lambda raced: raced.compact(where=IN_A), rounds=2)
    assert len(live(table.inspect(), DATA)) == 2
    check_onward(table)


def test_compaction_of_other_files(table: JavaTable, compact: Compact) -> None:
    race(table, compact, lambda raced: raced.compact(where=IN_A), where="p = 'b'")
    assert len(live(table.inspect(), DATA)) == 2
    check_onward(table)


def test_delete_that_came_and_was_converted(table: JavaTable, compact: Compact, convert: Convert) -> None:
    """No delete of the head says that the row is gone: what was staged before is not committed."""

    def delete_and_convert(raced: JavaTable) -> None:
        raced.commit(deletes=[eq("id", 2, partition=["a"])])
        assert str(convert(raced).status) == "committed"

    race(table, compact, delete_and_convert, rounds=2)
    assert len(table.lists()) == 9
    check_onward(table)


def test_delete_that_came_and_was_compacted_away(table: JavaTable, compact: Compact) -> None:
    """By Java, in its partition; the other partition is planned again."""

    def delete_and_compact(raced: JavaTable) -> None:
        raced.commit(deletes=[eq("id", 2, partition=["a"]), eq("id", 9, partition=["b"])])
        raced.compact(where=IN_A)

    race(table, compact, delete_and_compact, rounds=2)
    assert len(table.lists()) == 8
    check_onward(table)


def test_new_partition_spec(table: JavaTable, compact: Compact) -> None:
    """And deletes under both: of the old one for a row that was read, of the new one for none."""

    def respec(raced: JavaTable) -> None:
        raced.evolve(["partition", "b", "bucket[2]", "id"], ["rename", "id", "key"])
        raced.commit([2, "y", "a"], deletes=[eq("key", 3, spec=0, partition=["a"])])

    race(table, compact, respec)
    check_compaction(table, compact)
    check_onward(table)


def test_expired(table: JavaTable, compact: Compact) -> None:
    """The snapshot that was planned on is gone, and what came since cannot be told: all is planned again."""

    def expire(raced: JavaTable) -> None:
        raced.commit([12, "y", "a"])
        raced.expire()

    race(table, compact, expire, rounds=2)
    check_onward(table)


@pytest.mark.parametrize("deleted", [False, True], ids=["quiet", "deleted"])
def test_java_compaction_that_started_before(table: JavaTable, compact: Compact, deleted: bool) -> None:
    """It finds its files gone and gives up; in another partition it may go on."""
    planned = table.metadata
    if deleted:
        table.commit(deletes=[eq("id", 2, partition=["a"])])
    check_compaction(table, compact, where="p = 'a'")
    rows = rows_of(table)
    for where in (None, IN_A):
        with pytest.raises(JavaError, match="Missing required files to delete"):
            table.compact(planned, where)
    assert_same(rows_of(table), rows)
    rows = table.rows()
    table.compact(planned, {"type": "eq", "term": "p", "value": "b"})
    assert_same(table.rows(), rows)
    check_onward(table)


def test_java_delete_that_started_before(table: JavaTable, compact: Compact, version: int) -> None:
    """Its positions are of a file that is gone: it is not committed, and so does not get lost."""
    planned, path = table.metadata, first_of_a(table)
    check_compaction(table, compact)
    rows = rows_of(table)
    with pytest.raises(JavaError, match="missing data files"):
        table.commit(**pos(version, (path, [0])), planned=planned)
    assert_same(rows_of(table), rows)
