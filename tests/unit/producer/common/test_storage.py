"""Where files of a table may lie, however their paths are spelt."""

from __future__ import annotations

import pytest

from producer.common.storage import TableLocations


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
