"""Masters that are made once, and places in which each run finds them as they were."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from bench.catalog import RunCatalog
from bench.data import GeneratedTable, master
from bench.files import Files
from bench.place import Place
from tasks.testing import StreamTable
from tests.bench.conftest import ROWS, recipe


def test_a_master_is_made_once(tmp_path: Path) -> None:
    made = master(Place.disk(tmp_path), "small", recipe)
    assert (made.files.data, made.files.equality_deletes, made.files.deletes) == (1, 1, 1)
    assert made.tables[0].truth.rows == 8

    def never(catalog: Catalog) -> Iterator[GeneratedTable]:
        raise AssertionError("made again")

    assert master(Place.disk(tmp_path), "small", never) == made


def test_a_master_that_was_moved_is_made_again(tmp_path: Path) -> None:
    master(Place.disk(tmp_path / "here"), "small", recipe)
    (tmp_path / "here").rename(tmp_path / "there")
    made = master(Place.disk(tmp_path / "there"), "small", recipe)
    assert str(tmp_path / "there") in made.tables[0].metadata_location


def test_a_master_that_was_half_made_is_made_anew(tmp_path: Path) -> None:
    def broken(catalog: Catalog) -> Iterator[GeneratedTable]:
        yield from recipe(catalog)
        raise RuntimeError("the power failed")

    with pytest.raises(RuntimeError):
        master(Place.disk(tmp_path), "small", broken)
    assert master(Place.disk(tmp_path), "small", recipe).files.data == 1


def test_every_run_starts_from_the_same_table(tmp_path: Path) -> None:
    made = master(Place.disk(tmp_path), "small", recipe)
    catalog = RunCatalog(tmp_path / "catalog", Place.disk(tmp_path))
    names = []
    for _ in range(2):
        with catalog.register_master(made) as run_tables:
            names += run_tables.names
            assert run_tables.files() == made.files
            assert not run_tables.changed()
            assert run_tables.added_bytes() == 0
            StreamTable(catalog.pyiceberg, run_tables.names[0]).append(ROWS)
            (run_tables.output / "beside").write_bytes(b"12345")
            assert run_tables.changed()
            assert run_tables.files() == made.files + Files(data=1, data_bytes=run_tables.files().data_bytes // 2)
            added = made.added()
            assert run_tables.added_bytes() == sum(path.stat().st_size for path in added) + 5
        assert made.added() == []
        assert not any(path.exists() for path in added)
        assert not catalog.pyiceberg.table_exists(names[-1])
    assert len(set(names)) == 2
    catalog.close()
    assert not catalog.folder.exists()


def test_what_a_killed_run_left_is_no_part_of_the_next(tmp_path: Path) -> None:
    made = master(Place.disk(tmp_path), "small", recipe)
    stray = Path(made.tables[0].metadata_location.removeprefix("file://")).parent / "stray.parquet"
    stray.write_bytes(b"x")
    master(Place.disk(tmp_path), "small", recipe)
    assert not stray.exists()
