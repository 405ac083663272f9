"""Data files of the right size, written as their unit says, and the notes of their paths."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.types import LongType, NestedField

from producer.model.plan import Scope, SortKey, Strategy
from producer.model.staged import StagedDataFile
from tests.support.rewriteunit import rewrite_unit
from workers.arrow.schema import arrow_schema
from workers.formats.output_files import Journal, OutputFiles, RollingWriter, RowGroupLimits
from workers.model.units import Sizes

_SCHEMA = Schema(*(NestedField(number, f"c{number}", LongType(), required=False) for number in (1, 2, 3)))


def test_a_full_disk_is_named_by_the_note(tmp_path: Path) -> None:
    (tmp_path / "journal-0-0").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as error:
        Journal(PyArrowFileIO(), f"{tmp_path.as_uri()}/journal").note(0, 0, "file:///lake/a.parquet")
    assert error.value.filename == f"{tmp_path.as_uri()}/journal-0-0"


@pytest.mark.parametrize(("strategy", "bounded"), [(Strategy.SORT, {2}), (Strategy.ZORDER, set())])
def test_columns_that_rows_are_sorted_by_keep_bounds(tmp_path: Path, strategy: Strategy, bounded: set[int]) -> None:
    unit = rewrite_unit(
        schema=_SCHEMA,
        strategy=strategy,
        order=(
            SortKey(field_id=2, transform="identity", descending=False, nulls_first=True),
            SortKey(field_id=3, transform="bucket[4]", descending=False, nulls_first=True),
        ),
        zorder=(1,),
        location=load_location_provider(tmp_path.as_uri(), {}),
        journal=f"{tmp_path.as_uri()}/journal",
        properties={"write.metadata.metrics.default": "counts"},
    )
    rows = pa.RecordBatch.from_arrays([pa.array(range(5), pa.int64())] * 3, schema=arrow_schema(_SCHEMA))
    ((partition, written),) = OutputFiles(unit, PyArrowFileIO(), 0, tmp_path, 1 << 20).write(
        Scope(spec_id=0, values=(), label=""), [rows], 10.0, 5
    )
    assert partition == Scope(spec_id=0, values=(), label="")
    assert (written.records, set(written.value_counts)) == (5, {1, 2, 3})
    assert set(written.lower_bounds) == bounded


SIZES = Sizes(1000, 750, 1800)
WIDE = RowGroupLimits(1 << 20, 1 << 30, 1 << 30)


@dataclass
class Disk:
    """Files in memory, of so many bytes a row once they are written."""

    width: float
    groups: list[list[int]] = field(default_factory=list)
    open: int = 0

    def start(self) -> _File:
        self.groups.append([])
        self.open += 1
        return _File(self, self.groups[-1])


@dataclass
class _File:
    disk: Disk
    groups: list[int]

    @property
    def rows(self) -> int:
        return sum(self.groups)

    @property
    def size(self) -> int:
        return round(4 + self.rows * self.disk.width)

    def write(self, table: pa.Table) -> None:
        assert table.num_rows
        self.groups.append(table.num_rows)

    def close(self) -> StagedDataFile:
        self.disk.open -= 1
        return StagedDataFile(
            scope=0,
            path="",
            size=self.size,
            records=self.rows,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds={},
            upper_bounds={},
            split_offsets=(),
        )


def written(
    rows: int,
    *,
    width: float = 10,
    guess: float = 10,
    told: int = -1,
    limits: RowGroupLimits = WIDE,
    batch: int = 7,
) -> tuple[Disk, list[StagedDataFile]]:
    """What comes of so many rows; ``told`` is how many were said to come, -1 for the truth."""
    disk = Disk(width)
    writer = RollingWriter(disk.start, SIZES, limits, guess, rows if told == -1 else told)
    for start in range(0, rows, batch):
        writer.write(pa.record_batch({"x": pa.array(range(start, min(start + batch, rows)))}))
    files = writer.close()
    assert disk.open == 0
    assert sum(file.records for file in files) == rows
    return disk, files


@pytest.mark.parametrize(
    ("rows", "files"), [(0, 0), (1, 1), (70, 1), (100, 1), (160, 1), (164, 2), (297, 2), (303, 3), (1005, 10)]
)
def test_even_files_rather_larger_than_smaller(rows: int, files: int) -> None:
    _, made = written(rows)
    assert len(made) == files


@settings(max_examples=200, deadline=None)
@given(
    rows=st.integers(0, 3000),
    width=st.floats(1, 20),
    guess=st.floats(0.2, 5),
    batch=st.integers(1, 500),
    group=st.integers(1, 400),
)
def test_no_file_is_too_large_or_too_small(rows: int, width: float, guess: float, batch: int, group: int) -> None:
    """Whatever was guessed of the width, and wherever row groups end."""
    limits = RowGroupLimits(group, 1 << 30, 1 << 30)
    _, files = written(rows, width=width, guess=guess * width, batch=batch, limits=limits)
    slack = width * 2 + 10
    assert all(file.size <= SIZES.most + slack for file in files)
    if rows * width > SIZES.least:
        assert all(file.size >= SIZES.least - slack for file in files)
    else:
        assert len(files) <= 1


@pytest.mark.parametrize("told", [10, 1200, 1260, 5000])
def test_when_it_is_not_known_how_many_come(told: int) -> None:
    """No file is too large; the last one may be small, and no row group is for want of rows that were expected."""
    disk, files = written(1230, told=told)
    assert all(file.size <= SIZES.most for file in files)
    assert all(file.size >= SIZES.least for file in files[:-1])
    assert sum(map(len, disk.groups)) <= 3 * len(files)


def test_some_more_rows_than_were_expected_join_the_last_file() -> None:
    _, files = written(315, told=300)
    assert len(files) == 3


def test_row_groups_end_where_the_first_limit_is_reached() -> None:
    disk, _ = written(100, limits=RowGroupLimits(40, 1 << 30, 1 << 30))
    assert disk.groups == [[12, 40, 48]]
    disk, _ = written(100, limits=RowGroupLimits(1 << 20, 250, 1 << 30))
    assert all(size <= 30 for size in disk.groups[0])
    disk, _ = written(100, limits=RowGroupLimits(1 << 20, 1 << 30, 80))
    assert all(size <= 12 for size in disk.groups[0])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """An empty journal."""
    return Journal(PyArrowFileIO(), f"file://{tmp_path}/jobs/journal-7-ab")


def test_notes_are_found_again(journal: Journal) -> None:
    for task, number, path in [(0, 0, "a"), (0, 1, "bé"), (2, 0, "c")]:
        journal.note(task, number, path)
    assert list(journal.paths(3)) == ["a", "bé", "c"]
    assert list(journal.paths(2)) == ["a", "bé"]


def test_a_torn_note_names_nothing(journal: Journal, tmp_path: Path) -> None:
    journal.note(0, 0, "a")
    (tmp_path / "jobs" / "journal-7-ab-0-1").touch()
    assert list(journal.paths(1)) == ["a"]


def test_a_note_that_is_no_text_ends_nothing(journal: Journal, tmp_path: Path) -> None:
    journal.note(0, 0, "data/a.parquet")
    (note,) = (path for path in tmp_path.rglob("*") if path.is_file())
    note.write_bytes(b"\xff\xfe\x00")
    journal.note(0, 1, "data/b.parquet")
    assert "data/b.parquet" in list(journal.paths(1))


def test_clearing_ends_with_the_first(journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        journal.note(0, number, str(number))
    deleted: list[str] = []
    real = PyArrowFileIO.delete

    def delete(io: PyArrowFileIO, location: str) -> None:
        if len(deleted) == 2:
            raise OSError("the connection was lost")
        deleted.append(location)
        real(io, location)

    monkeypatch.setattr(PyArrowFileIO, "delete", delete)
    with pytest.raises(OSError, match="lost"):
        journal.clear(1)
    assert list(journal.paths(1)) == ["0", "1"], "what is left is found from the first on"
    monkeypatch.undo()
    journal.clear(1)
    assert list((tmp_path / "jobs").iterdir()) == []
