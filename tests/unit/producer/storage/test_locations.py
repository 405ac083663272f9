"""Where files of a table may lie, however their paths are spelt; how they are written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from producer.storage.files import write_file
from producer.storage.locations import TableLocations


def test_a_full_disk_is_named_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "record.json").symlink_to("/dev/full")
    with pytest.raises(OSError, match=f"No space left on device.*{tmp_path}/record.json"):
        write_file(PyArrowFileIO(), f"{tmp_path.as_uri()}/record.json", b"x")


@pytest.mark.parametrize(
    ("root", "inside", "outside"),
    [
        ("s3://lake/db/t", "s3://lake/db/t/data/a.parquet", "s3://lake/db/t2/data/a.parquet"),
        ("s3://lake/db/t/", "s3://lake/db/t/a", "s3://lake/db/t"),
        ("s3://lake/db/t", "s3://lake/db/t/a..b", "s3://lake/db/t/../u/a"),
        ("file:///lake/t", "/lake/t/a", "/lake/ta/a"),
        ("/lake/t", "file:/lake/t/a", "file:///lake/a"),
        ("file:/lake/t", "file:///lake/t/a", "file:///lake/t/b/../../a"),
    ],
)
def test_what_lies_below_a_root(root: str, inside: str, outside: str) -> None:
    places = TableLocations.at("gs://other", root)
    assert places.contain(inside)
    assert not places.contain(outside)
