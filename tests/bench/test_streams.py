"""Writers of the bench keep account of what their tables hold; here a reader that shares no code with them is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from bench.contestants.iceberg_rust import checksum
from bench.data import GeneratedTable
from bench.files import Files
from bench.workloads import w1, w2, w3, w4
from tasks.testing import local_catalog

Recipe = Callable[[Catalog], Iterable[GeneratedTable]]


@pytest.mark.parametrize(
    ("recipe", "data", "equality", "position"),
    [
        pytest.param(partial(w1.recipe, 0.001, 1000), 7, 0, 0, id="w1"),
        pytest.param(partial(w2.recipe, 4, 100), 4, 4, 4, id="w2"),
        pytest.param(partial(w3.recipe, 0.001, 4, False), 12, 4, 0, id="w3"),
        pytest.param(partial(w4.recipe, 0.001, 5), 13, 5, 0, id="w4"),
    ],
)
def test_truth(tmp_path: Path, recipe: Recipe, data: int, equality: int, position: int) -> None:
    (made,) = recipe(local_catalog(tmp_path, "bench"))
    table = made.table.table
    columns = [field.name for field in table.schema().fields]
    found = checksum({"metadata_location": table.metadata_location, "columns": columns})
    assert (found["rows"], int(found["hashes"])) == (made.truth.rows, made.truth.hashes)
    files = Files.of(table)
    assert (files.data, files.equality_deletes, files.position_deletes) == (data, equality, position)


def test_recipes_make_the_same_rows_each_time(tmp_path: Path) -> None:
    recipe = partial(w3.recipe, 0.001, 3, False)
    first, second = (next(iter(recipe(local_catalog(tmp_path / name, "bench")))) for name in ("a", "b"))
    assert first.truth == second.truth
