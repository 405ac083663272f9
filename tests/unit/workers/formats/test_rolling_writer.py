"""Files of the right size: how rows are cut into row groups and files as they come."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from producer.model.staged import StagedDataFile
from workers.formats.output_files import RollingWriter, RowGroupLimits
from workers.model.units import Sizes

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
    told: int | None = -1,
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


@pytest.mark.parametrize("told", [None, 10, 1200, 1260, 5000])
def test_when_it_is_not_known_how_many_come(told: int | None) -> None:
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
