"""Which rows an equality delete removes: histories of one small table, in both format versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tasks.testing import RowDelta, StreamTable
from tests.integration.conftest import Create
from tests.support.scenario import Rows, check, run

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("data", pa.string())])
LETTERS = [(i, letter) for i, letter in enumerate("abcdefg", 1)]
Step = Callable[[StreamTable], Any]


def table(rows: Rows) -> pa.Table:
    """Rows of the table that all these scenarios have."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def keys(columns: str, *values: Any) -> tuple[pa.Table, list[str]]:
    """Keys of one column, or tuples for several, with the names of the columns."""
    names = columns.split(", ")
    rows = [value if len(names) > 1 else (value,) for value in values]
    schema = pa.schema([SCHEMA.field(name) for name in names])
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema), names


def append(*rows: Any) -> Step:
    return lambda stream: stream.append(table(rows))


def upsert(columns: str, *rows: Any) -> Step:
    return lambda stream: stream.upsert(table(rows), columns.split(", "))


def delete(columns: str, *values: Any) -> Step:
    return lambda stream: stream.delete_where_equal(*keys(columns, *values))


def delete_several(*sets: tuple[Any, ...]) -> Step:
    """Several delete files in one commit: the columns of each, then its keys."""

    def step(stream: StreamTable) -> None:
        files = [file for columns, *values in sets for file in stream.write_equality_deletes(*keys(columns, *values))]
        stream.commit(RowDelta(files))

    return step


def mixed(rows: Rows, columns: str, *values: Any) -> Step:
    """Rows and deletes in one commit: the same sequence number."""

    def step(stream: StreamTable) -> None:
        data, deletes = stream.write_data(table(rows)), stream.write_equality_deletes(*keys(columns, *values))
        stream.commit(RowDelta([*data, *deletes]))

    return step


def with_other_columns(columns: str, *rows: Any) -> Step:
    """A delete file that holds columns which are no keys."""
    return lambda stream: stream.delete_where_equal(table(rows), columns.split(", "))


@dataclass(frozen=True)
class Case:
    """What happens to a table, its rows afterwards, and how many positions in how many files these take."""

    steps: list[Step]
    rows: Rows
    positions: int
    files: int


HIGHEST = "\U0010ffff" * 20
LONG = "the first sixteen characters are the same: "

CASES: dict[str, Case] = {
    "rows of one file": Case(
        [append(*LETTERS), delete("data", "a", "d", "g")], [(2, "b"), (3, "c"), (5, "e"), (6, "f")], 3, 1
    ),
    "the same key in two files": Case(
        [
            append(*[(i, "x") for i in range(3)], *[(i, "y") for i in range(4)]),
            append(*[(i, "x") for i in range(4)], *[(i, "z") for i in range(4)]),
            delete("data", "x"),
        ],
        [(i, letter) for letter in "yz" for i in range(4)],
        7,
        2,
    ),
    "null is a key, and lives when it is written again": Case(
        [append((1, "a"), (None, "b"), (3, "c")), delete("id", None, 3), append((None, "d"))],
        [(1, "a"), (None, "d")],
        2,
        1,
    ),
    "the text of a null is none": Case(
        [append((1, None), (2, ""), (3, "null"), (4, "None")), delete("data", None)],
        [(2, ""), (3, "null"), (4, "None")],
        1,
        1,
    ),
    "empty text is no null": Case([append((1, None), (2, "")), delete("data", "")], [(1, None)], 1, 1),
    "several columns are one key": Case(
        [append((4, None), (4, "x"), (5, None), (None, None)), delete("id, data", (4, None), (5, "x"))],
        [(4, "x"), (5, None), (None, None)],
        1,
        1,
    ),
    "columns in another order than the table's": Case(
        [append(*LETTERS), delete("data, id", ("a", 1), ("b", 1), ("c", 3))], LETTERS[1:2] + LETTERS[3:], 2, 1
    ),
    "keys that are each somebody's, but not together": Case(
        [append((1, "b"), (2, "a"), (2, "b")), delete("id, data", (1, "a"), (2, "b"))], [(1, "b"), (2, "a")], 1, 1
    ),
    "two sets of columns meet in one row": Case(
        [append(*LETTERS), delete_several(("data", "a", "b"), ("id", 2, 3))], LETTERS[3:], 3, 1
    ),
    "two sets of columns at two times": Case(
        [append(*LETTERS), delete("data", "a"), append((1, "a"), (9, "a")), delete("id", 1)],
        [*LETTERS[1:], (9, "a")],
        2,
        2,
    ),
    "an upsert leaves its own rows": Case(
        [append((1, "v1"), (2, "v1")), upsert("id", (1, "v2"))], [(1, "v2"), (2, "v1")], 1, 1
    ),
    "an upsert leaves its own rows, and so does a delete of others that comes later": Case(
        [append((1, "v1"), (9, "x")), upsert("id", (1, "v2"), (5, "v2")), delete("id", 3, 2)],
        [(9, "x"), (1, "v2"), (5, "v2")],
        1,
        1,
    ),
    "a first upsert deletes nothing": Case([upsert("id", (1, "v1"))], [(1, "v1")], 0, 0),
    "insert, delete, insert": Case([append((1, "a")), delete("id", 1), append((1, "b"))], [(1, "b")], 1, 1),
    "insert, update, delete, insert, update": Case(
        [append((1, "v1")), upsert("id", (1, "v2")), delete("id", 1), append((1, "v3")), upsert("id", (1, "v4"))],
        [(1, "v4")],
        3,
        3,
    ),
    "each key goes by its own newest delete": Case(
        [append((1, "a"), (2, "a")), delete("id", 1), append((1, "b"), (2, "b")), delete("id", 2), append((2, "c"))],
        [(1, "b"), (2, "c")],
        3,
        2,
    ),
    "a delete of the same commit": Case(
        [append((1, "old"), (2, "old")), mixed([(1, "new"), (3, "new")], "id", 1, 3)],
        [(2, "old"), (1, "new"), (3, "new")],
        1,
        1,
    ),
    "a key that is deleted again and again": Case(
        [append(*LETTERS), delete("id", 1, 1, 1), delete("id", 1), delete("id", 1, 2)], LETTERS[2:], 2, 1
    ),
    "a key that is deleted a thousand times, and written between": Case(
        [append((1, "a"), (3, "c")), delete("id", *[1] * 1500), append((1, "b"), (3, "d")), delete("id", *[1] * 1500)],
        [(3, "c"), (3, "d")],
        2,
        2,
    ),
    "a key that is nowhere, between those that are": Case(
        [append((1, "a"), (3, "c")), delete("id", 2)], [(1, "a"), (3, "c")], 0, 0
    ),
    "a key that bounds rule out": Case([append((1, "a"), (3, "c")), delete("id", 9)], [(1, "a"), (3, "c")], 0, 0),
    "every row of a file": Case([append(*LETTERS), append((8, "h")), delete("id", *range(1, 8))], [(8, "h")], 7, 1),
    "every row there is": Case([append(*LETTERS), delete("id", *range(-5, 50))], [], 7, 1),
    "deletes older than all data": Case([delete("id", 1), append((1, "a"))], [(1, "a")], 0, 0),
    "other columns of a delete file": Case(
        [append(*LETTERS), with_other_columns("id", (1, "a"), (2, "no such"), (3, None))], LETTERS[3:], 3, 1
    ),
    "rows that are the same": Case([append((1, "a"), (1, "a"), (2, "a")), delete("id", 1)], [(2, "a")], 2, 1),
    "keys longer than bounds": Case(
        [append((1, LONG + "a"), (2, LONG + "z"), (3, HIGHEST)), delete("data", LONG + "z", HIGHEST)],
        [(1, LONG + "a")],
        2,
        1,
    ),
    "the ends of a type": Case(
        [append((2**63 - 1, "a"), (-(2**63), "b"), (0, "c")), delete("id", 2**63 - 1, -(2**63))], [(0, "c")], 2, 1
    ),
    "text that is not the same in bytes": Case(
        [append((1, "ä"), (2, "a\u0308"), (3, "A"), (4, "a ")), delete("data", "ä", "a")],
        [(2, "a\u0308"), (3, "A"), (4, "a ")],
        1,
        1,
    ),
}  # fmt: skip


# Matching knows nothing of the version, so one is enough for each.
@pytest.mark.parametrize(("name", "version"), [pytest.param(name, 2 + n % 2, id=name) for n, name in enumerate(CASES)])
def test_history(create: Create, version: int, name: str) -> None:
    case = CASES[name]
    stream = create(SCHEMA, version)
    for step in case.steps:
        step(stream)
    check(stream, case.rows, positions=case.positions, files=case.files)


def test_nothing_to_convert(create: Create, version: int) -> None:
    """No data, no deletes: a reason, and no new snapshot, file or metadata."""
    stream = create(SCHEMA, version)
    for _ in range(2):
        location = stream.table.metadata_location
        report = run(stream)
        assert (report.status, report.snapshot_id) == ("nothing_to_do", None)
        assert report.reason
        assert stream.table.metadata_location == location
        append(*LETTERS)(stream)


def test_positions_count_over_the_row_groups_of_a_file(create: Create, version: int) -> None:
    stream = create(SCHEMA, version)
    stream.append(table([(i, f"value {i}") for i in range(200)]), row_group_size=50)
    gone = [97, 98, 99, 101, 103, 107, 109]
    delete("id", *gone)(stream)
    check(stream, [(i, f"value {i}") for i in range(200) if i not in gone], positions=7, files=1)


def test_many_files_and_one_delete(create: Create, version: int) -> None:
    """Vectors of several files share Puffin files; position delete files do not."""
    stream = create(SCHEMA, version)
    for start in range(0, 60, 5):
        append(*[(i, "x") for i in range(start, start + 5)])(stream)
    delete("id", *range(0, 60, 5), 1)(stream)
    check(stream, [(i, "x") for i in range(60) if i % 5 and i != 1], positions=13, files=12)
    written = {file.path for file in stream.delete_files()}
    assert len(written) == 12 if version < 3 else len(written) < 12


def test_several_units_are_one_snapshot(create: Create, version: int) -> None:
    """Files of more than a megabyte of keys each, and units of one megabyte."""
    stream = create(SCHEMA, version)
    numbers = np.random.default_rng(5).integers(2**62, size=(3, 150_000))
    for part in numbers:
        stream.append(pa.table({"id": part, "data": ["x"] * len(part)}))
    stream.delete_where_equal(pa.table({"id": numbers[:, 7]}), ["id"])
    snapshots = len(stream.table.metadata.snapshots)
    report = run(stream, unit_mb=1)
    assert (report.status, report.added_position_deletes) == ("committed", 3)
    assert report.units == 3
    assert len(stream.table.metadata.snapshots) == snapshots + 1
    assert {file.record_count for file in stream.delete_files()} == {1}
