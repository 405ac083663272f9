"""Conversions of tables that have position deletes or vectors already, and of branches."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFileContent

from producer.model.plan import VectorRef
from tasks.testing import RowDelta, StreamTable, read_rows
from tests.integration.conftest import Create
from tests.support import oracle
from tests.support.scenario import check, multiset, run
from workers.formats.puffin import read_vector

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("id", pa.int64()), ("data", pa.string())])
LETTERS = [(i, letter) for i, letter in enumerate("abcdefg", 1)]


def table(*rows: tuple[int, str]) -> pa.Table:
    return pa.Table.from_pylist([{"id": i, "data": data} for i, data in rows], SCHEMA)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def delete_rows(stream: StreamTable, positions: dict[str, list[int]]) -> None:
    """What a row-level delete leaves in the table's format version."""
    if stream.table.metadata.format_version >= 3:
        stream.delete_vector(positions)
    else:
        stream.delete_positions(positions)


def cardinalities(stream: StreamTable) -> dict[str, int]:
    """Deleted rows by data file, as its one vector or its position delete files say."""
    found: dict[str, int] = {}
    for file in stream.delete_files():
        if file.referenced_data_file:
            found[file.referenced_data_file] = found.get(file.referenced_data_file, 0) + file.record_count
    return found


def test_a_row_that_is_deleted_already_is_not_deleted_twice(create: Create, version: int) -> None:
    """v2 gets the new positions alone; a v3 file has one vector with the old one in it, which leaves."""
    stream = create(SCHEMA, version)
    stream.append(table(*LETTERS))
    stream.append(table(*LETTERS))
    first, second = (file.path for file in stream.data_files())
    delete_rows(stream, {first: [0, 1], second: [6]})
    stream.delete_where_equal(ids(1, 3), ["id"])
    check(stream, [*LETTERS[3:], LETTERS[1], *LETTERS[3:6]], positions=3, files=2)
    assert cardinalities(stream) == {first: 3, second: 3}
    assert len(stream.delete_files()) == (4 if version == 2 else 2)
    summary = stream.table.current_snapshot().summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary.additional_properties.get("removed-dvs") == (None if version == 2 else "2")


def test_a_file_with_nothing_new_is_left_alone(create: Create, version: int) -> None:
    """All that matches is deleted already: the old vector stays as it is."""
    stream = create(SCHEMA, version)
    stream.append(table(*LETTERS))
    (path,) = (file.path for file in stream.data_files())
    delete_rows(stream, {path: [0, 1]})
    before = [file.identity for file in stream.delete_files()]
    stream.delete_where_equal(ids(1, 2), ["id"])
    check(stream, LETTERS[2:], positions=0, files=0)
    assert [file.identity for file in stream.delete_files()] == before


def test_position_deletes_reach_rows_of_their_own_commit(create: Create, version: int) -> None:
    """Equality deletes of that commit do not."""
    stream = create(SCHEMA, version)
    (data,) = stream.write_data(table(*LETTERS))
    deletes = stream.write_equality_deletes(ids(2, 3), ["id"])
    if version == 2:
        more = stream.write_position_deletes({data: [0]})
    else:
        more = list(stream.write_vectors({data: [0]}).added)
    stream.commit(RowDelta([data, *deletes, *more]))
    stream.delete_where_equal(ids(4), ["id"])
    check(stream, [LETTERS[1], LETTERS[2], *LETTERS[4:]], positions=1, files=1)
    assert sum(cardinalities(stream).values()) == 2


def test_position_deletes_of_older_data_do_not_count(create: Create) -> None:
    """A file that claims a higher sequence number than the position deletes that name it keeps its row."""
    stream = create(SCHEMA)
    stream.append(table(*LETTERS))
    (file,) = stream.data_files()
    stream.delete_positions({file.path: [0]})
    deletes = [f for f in stream.files() if f.content == DataFileContent.POSITION_DELETES]
    stream.delete_where_equal(ids(2), ["id"])
    stream.remove_files([deletes[0].path])
    check(stream, [LETTERS[0], *LETTERS[2:]], positions=1, files=1)


def test_converted_again_and_again(create: Create, version: int) -> None:
    stream = create(SCHEMA, version)
    stream.append(table(*LETTERS), row_group_size=2)
    (path,) = (file.path for file in stream.data_files())
    for number in (1, 2, 3):
        stream.delete_where_equal(ids(number), ["id"])
        check(stream, LETTERS[number:], positions=1, files=1)
    assert cardinalities(stream) == {path: 3}
    assert len(stream.delete_files()) == (3 if version == 2 else 1)


def test_file_scoped_position_deletes_go_into_the_vector(create: Create) -> None:
    """A table that was upgraded: what a vector took up leaves with the commit."""
    stream = create(SCHEMA)
    stream.append(table(*LETTERS))
    stream.append(table((8, "h"), (9, "i")))
    one, two = (file.path for file in stream.data_files())
    stream.delete_positions({one: [0, 6], two: [0]})
    stream.upgrade()
    stream.delete_where_equal(ids(1, 2), ["id"])
    check(stream, [*LETTERS[2:6], (9, "i")], positions=1 + 2 - 2, files=1)
    left = {file.referenced_data_file: file for file in stream.delete_files()}
    assert {path: (file.is_vector, file.record_count) for path, file in left.items()} == {
        one: (True, 3),
        two: (False, 1),
    }


def test_position_deletes_of_partitions_stay_until_all_they_name_have_vectors(create: Create) -> None:
    stream = create(SCHEMA)
    stream.append(table(*LETTERS))
    stream.append(table((8, "h"), (9, "i")))
    one, two = (file.path for file in stream.data_files())
    stream.delete_positions({one: [0, 6], two: [0]}, by_partition=True)
    stream.upgrade()
    (shared,) = (file.path for file in stream.delete_files())

    stream.delete_where_equal(ids(1, 2), ["id"])
    assert run(stream).status == "committed"
    rows = [*LETTERS[2:6], (9, "i")]
    assert oracle.rows(stream.table) == multiset(rows)
    kinds = {file.path if not file.is_vector else file.referenced_data_file for file in stream.delete_files()}
    assert kinds == {shared, one}
    assert cardinalities(stream) == {one: 3}

    stream.delete_where_equal(ids(9, 3), ["id"])
    assert run(stream).status == "committed"
    assert oracle.rows(stream.table) == multiset(rows[1:4])
    assert cardinalities(stream) == {one: 4, two: 2}
    assert all(file.is_vector for file in stream.delete_files())
    assert multiset(row.values() for row in read_rows(stream.table).to_pylist()) == multiset(rows[1:4])


def test_a_version_3_table_gets_no_position_delete_file(create: Create) -> None:
    """Nor a version 2 table a vector, whatever granularity is asked for."""
    stream = create(SCHEMA, 3, properties={"write.delete.granularity": "partition"})
    stream.append(table(*LETTERS))
    stream.append(table(*LETTERS))
    stream.delete_where_equal(ids(1), ["id"])
    check(stream, LETTERS[1:] * 2, positions=2, files=2)
    assert len({file.path for file in stream.delete_files()}) <= 2


def test_positions_beyond_the_first_bitmap_key_survive_a_merge(create: Create) -> None:
    """The union keeps every position of the vector that was there."""
    stream = create(SCHEMA, 3)
    stream.append(table(*[(i, "x") for i in range(70_000)]), row_group_size=10_000)
    (path,) = (file.path for file in stream.data_files())
    old = [0, 1, 65_535, 65_536, 69_998]
    stream.delete_vector({path: old})
    stream.delete_where_equal(ids(65_537, 69_999, 65_535), ["id"])
    check(stream, [(i, "x") for i in range(70_000) if i not in {*old, 65_537, 69_999}], positions=2, files=1)
    (file,) = stream.delete_files()
    ref = VectorRef(
        path=file.path, offset=file.content_offset or 0, size=file.content_size or 0, cardinality=file.record_count
    )
    assert read_vector(stream.table.io, ref, path).positions().tolist() == sorted([*old, 65_537, 69_999])


def test_a_branch(create: Create, version: int) -> None:
    """Main stays where it is, and so does a tag."""
    stream = create(SCHEMA, version)
    stream.append(table(*LETTERS))
    stream.table.manage_snapshots().create_tag(stream.table.current_snapshot().snapshot_id, "before").commit()  # type: ignore[union-attr]
    stream.delete_where_equal(ids(1), ["id"])
    stream.append(table((8, "h")), branch="other")
    stream.delete_where_equal(ids(2, 8), ["id"], branch="other")
    refs = {name: ref.snapshot_id for name, ref in stream.table.metadata.refs.items()}
    check(stream, LETTERS[2:], positions=3, files=2, branch="other")
    after = {name: ref.snapshot_id for name, ref in stream.table.metadata.refs.items()}
    assert {name for name in refs if refs[name] != after[name]} == {"other"}
    assert oracle.rows(stream.table, "before") == multiset(LETTERS)
    check(stream, LETTERS[1:], positions=1, files=1)
    report = run(stream, branch="nowhere")
    assert report.status == "refused"
    assert "nowhere" in str(report.reason)


def test_time_travel_sees_what_was(create: Create, version: int) -> None:
    stream = create(SCHEMA, version)
    stream.append(table(*LETTERS))
    before = stream.delete_where_equal(ids(1), ["id"])
    check(stream, LETTERS[1:], positions=1, files=1)
    assert multiset(row.values() for row in read_rows(stream.table, before).to_pylist()) == multiset(LETTERS[1:])
