"""Snapshot summaries: what is counted under which name, and totals that reconcile."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from producer.iceberg.manifest_entry import new_data_file
from producer.iceberg.snapshots import summarize

KEY = (0, ())


def file(content: DataFileContent, records: int, size: int, **fields: Any) -> tuple[Any, DataFile]:
    values: dict[str, Any] = {"file_path": "f", "file_format": FileFormat.PARQUET, "partition": Record()}
    return KEY, new_data_file(
        **{**values, "content": content, "record_count": records, "file_size_in_bytes": size, **fields}
    )


def vector(records: int, blob: int) -> tuple[Any, DataFile]:
    return file(
        DataFileContent.POSITION_DELETES,
        records,
        10_000,
        file_format=FileFormat.PUFFIN,
        content_offset=4,
        content_size_in_bytes=blob,
    )


DATA = file(DataFileContent.DATA, 100, 1000)
EQUALITY = file(DataFileContent.EQUALITY_DELETES, 5, 50)
POSITION = file(DataFileContent.POSITION_DELETES, 7, 70)


def test_the_first_snapshot_counts_from_zero() -> None:
    assert summarize([DATA, DATA], [], None) == {
        "added-data-files": "2",
        "added-records": "200",
        "added-files-size": "2000",
        "changed-partition-count": "1",
        "total-data-files": "2",
        "total-delete-files": "0",
        "total-records": "200",
        "total-files-size": "2000",
        "total-position-deletes": "0",
        "total-equality-deletes": "0",
    }


def test_a_conversion_to_position_deletes() -> None:
    parent = summarize([DATA, EQUALITY, EQUALITY], [], None)
    assert summarize([POSITION], [EQUALITY, EQUALITY], parent) == {
        "added-delete-files": "1",
        "added-position-delete-files": "1",
        "added-position-deletes": "7",
        "added-files-size": "70",
        "removed-delete-files": "2",
        "removed-equality-delete-files": "2",
        "removed-equality-deletes": "10",
        "removed-files-size": "100",
        "changed-partition-count": "1",
        "total-data-files": "1",
        "total-delete-files": "1",
        "total-records": "100",
        "total-files-size": "1070",
        "total-position-deletes": "7",
        "total-equality-deletes": "0",
    }


def test_a_vector_is_a_delete_file_but_no_position_delete_file_and_counts_its_blob() -> None:
    parent = summarize([DATA, vector(3, 40)], [], None)
    summary = summarize([vector(5, 44)], [vector(3, 40)], parent)
    assert summary == {
        "added-delete-files": "1",
        "added-dvs": "1",
        "added-position-deletes": "5",
        "added-files-size": "44",
        "removed-delete-files": "1",
        "removed-dvs": "1",
        "removed-position-deletes": "3",
        "removed-files-size": "40",
        "changed-partition-count": "1",
        "total-data-files": "1",
        "total-delete-files": "1",
        "total-records": "100",
        "total-files-size": "1044",
        "total-position-deletes": "5",
        "total-equality-deletes": "0",
    }


def test_removed_data_files_are_called_deleted() -> None:
    summary = summarize([], [DATA], summarize([DATA], [], None))
    assert (summary["deleted-data-files"], summary["deleted-records"]) == ("1", "100")
    assert (summary["total-data-files"], summary["total-records"]) == ("0", "0")


@pytest.mark.parametrize("parent", [{}, {"total-records": "many"}, {"total-records": "-5"}])
def test_a_total_that_the_parent_does_not_know_is_left_out(parent: dict[str, str]) -> None:
    assert not [name for name in summarize([EQUALITY], [], parent) if name.startswith("total")]


def test_a_total_that_the_parent_knows_goes_on_where_others_do_not() -> None:
    summary = summarize([DATA], [], {"total-records": "1"})
    assert {name: value for name, value in summary.items() if name.startswith("total")} == {"total-records": "101"}


def test_partitions_are_counted_once() -> None:
    _, data_file = DATA
    keys = [(0, ("a",)), (0, ("b",)), (1, ("a",)), (0, ("a",))]
    assert (
        summarize([(key, data_file) for key in keys], [((0, ("c",)), data_file)], None)["changed-partition-count"]
        == "4"
    )
