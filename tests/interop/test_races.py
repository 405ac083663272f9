"""Java commits to the table after everything is staged and before it is committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.interop.bridge import Bridge, JavaTable, eq, pos
from tests.interop.checks import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    Convert,
    Entry,
    assert_same,
    check_deletes,
    check_metadata,
    check_onward,
    live,
)

COLUMNS = {"id": "long", "data": "string"}
ROWS = [[i, "x"] for i in range(8)]
pytestmark = pytest.mark.parametrize("version", [2, 3], ids=["v2", "v3"])


@pytest.fixture
def table(bridge: Bridge, warehouse: str, version: int) -> JavaTable:
    """Two data files and one equality delete, of ids 1 and 5; the next snapshot is the fourth."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    table.commit(data=[{"rows": ROWS[:4]}, {"rows": ROWS[4:]}])
    table.commit([8, "x"])
    table.commit(deletes=[eq("id", 1, 5)])
    return table


def race(
    table: JavaTable, convert: Convert, meanwhile: Callable[[JavaTable], object], remaining: int = 0
) -> list[Entry]:
    """Convert while Java commits: the rows are what Java made of them, and ``remaining`` equality deletes are live.

    Returns the position deletes that were live then.
    """
    found = []

    def and_look(raced: JavaTable) -> None:
        meanwhile(raced)
        found.append(raced.rows())

    report = convert(table, meanwhile=and_look)
    assert str(report.status) in ("committed", "nothing_to_do"), report
    (rows,) = found
    assert_same(table.rows(), rows)
    after = table.inspect()
    assert len(live(after, EQUALITY_DELETES)) == remaining
    check_deletes(table, after)
    check_metadata(after)
    assert str(convert(table).status) == ("committed" if remaining else "nothing_to_do")
    assert_same(table.rows(), rows)
    check_onward(table)
    return live(after, POSITION_DELETES)


def test_stream_goes_on(table: JavaTable, convert: Convert) -> None:
    """Rows and deletes that are newer than the plan are left to the next conversion."""
    race(table, convert, lambda raced: raced.commit([1, "y"], deletes=[eq("id", 1, 2)]), remaining=1)


def test_positions_of_the_same_files(table: JavaTable, convert: Convert, version: int) -> None:
    """The same row and others: a vector is merged once more."""

    def delete(raced: JavaTable) -> None:
        one, two = (file["file_path"] for file in live(raced.inspect(), DATA) if file["record_count"] == 4)
        raced.commit(**pos(version, (one, [0, 1]), (two, [3])))

    positions = race(table, convert, delete)
    if version == 3:
        assert [file["record_count"] for file in positions] == [2, 2]


def test_compaction_that_applied_the_delete(table: JavaTable, convert: Convert) -> None:
    """The data files are gone, and the delete with them: nothing is left to do."""
    race(table, convert, lambda raced: raced.compact())


def test_compaction_that_did_not_know_the_delete(
    bridge: Bridge, warehouse: str, convert: Convert, version: int
) -> None:
    """Its output is older than the delete, and has never been read: that is planned again."""
    table = bridge.create(f"{warehouse}/t", version, COLUMNS)
    table.commit(data=[{"rows": ROWS[:4]}, {"rows": ROWS[4:]}])
    planned = table.metadata
    table.commit([8, "x"])
    table.commit(deletes=[eq("id", 1, 5)])
    race(table, convert, lambda raced: raced.compact(planned))


def test_partition_spec_changes(table: JavaTable, convert: Convert) -> None:
    """And rows come under the new spec; the files of the old one keep theirs."""

    def respec(raced: JavaTable) -> None:
        raced.evolve(["partition", "b", "bucket[2]", "id"], ["add", "more", "int"], ["rename", "id", "key"])
        raced.commit([9, "y", 1], [1, "y", 2])

    race(table, convert, respec)
