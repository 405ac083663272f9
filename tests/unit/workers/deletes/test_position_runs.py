"""Runs of positions: what goes in in any order comes out by data file, ascending, once, a window at a time."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from workers.deletes import position_runs
from workers.deletes.position_runs import DeletedPositions, PositionRuns, PositionRunWriter, balance_positions


def runs(path: Path, rows: list[tuple[int, int]]) -> PositionRuns:
    """Runs of rows in any order."""
    with PositionRunWriter(path) as writer:
        for start in range(0, len(rows), 7):
            files, positions = zip(*rows[start : start + 7], strict=True)
            writer.add_rows(np.array(files, np.int32), np.array(positions, np.int64))
        return writer.close()


def read(deleted: DeletedPositions, file: int) -> list[tuple[int, bool]]:
    found = []
    for run in deleted.read(file):
        assert run.file == file
        found += zip(run.positions.tolist(), run.before.tolist(), strict=True)
    return found


@pytest.mark.parametrize("sorted_at_a_time", [1 << 21, 50])
@pytest.mark.parametrize("window", [1 << 20, 4])
def test_rows_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, sorted_at_a_time: int) -> None:
    monkeypatch.setattr(position_runs, "_WINDOW", window)
    monkeypatch.setattr(position_runs, "_SORTED_AT_A_TIME", sorted_at_a_time)
    draw = random.Random(window)
    rows = {name: [(draw.randrange(4), draw.randrange(200)) for _ in range(300)] for name in "abcd"}
    made = {name: runs(tmp_path / name, some) for name, some in rows.items()}
    deleted: DeletedPositions = pickle.loads(
        pickle.dumps(DeletedPositions([made["a"], made["b"]], [made["c"], made["d"]]))
    )
    fresh, before = {*rows["a"], *rows["b"]}, {*rows["c"], *rows["d"]}
    for file in range(4):
        every = sorted({position for where, position in fresh | before if where == file})
        assert read(deleted, file) == [(position, (file, position) in before) for position in every]
    assert read(deleted, 9) == []
    assert list(deleted.counts()) == [0, 1, 2, 3]


def test_runs_that_follow_one_another_are_one(tmp_path: Path) -> None:
    with PositionRunWriter(tmp_path / "a") as writer:
        for file, positions in [(3, [1, 2]), (3, [5]), (3, []), (3, [4]), (2, [9])]:
            writer.add(file, np.array(positions, np.int64))
        made = writer.close()
    assert (made.files.tolist(), made.ends.tolist()) == ([3, 3, 2], [3, 4, 5])
    assert read(DeletedPositions([made], []), 3) == [(1, False), (2, False), (4, False), (5, False)]


def test_files_that_lose_nothing_new_do_not_count_as_matched(tmp_path: Path) -> None:
    deleted = DeletedPositions([runs(tmp_path / "a", [(1, 5)])], [runs(tmp_path / "b", [(2, 7), (1, 8)])])
    assert deleted.counts(matched=True) == {1: 1}
    assert deleted.counts() == {1: 2, 2: 1}


def test_a_row_that_comes_twice_is_one(tmp_path: Path) -> None:
    deleted = DeletedPositions([runs(tmp_path / "a", [(1, 8), (1, 3), (1, 8)])], [])
    assert read(deleted, 1) == [(3, False), (8, False)]
    assert deleted.counts() == {1: 2}


def test_no_rows(tmp_path: Path) -> None:
    with PositionRunWriter(tmp_path / "a") as writer:
        writer.add_rows(np.empty(0, np.int32), np.empty(0, np.int64))
        made = writer.close()
    assert DeletedPositions([], [made]).counts() == {}


def test_nothing() -> None:
    assert DeletedPositions([], []).counts() == {}
    assert balance_positions([], 2) == []


def test_tasks_are_worth_their_while() -> None:
    assert balance_positions([10, 20], 4) == [[0, 1]]
    assert len(balance_positions([3_000_000] * 8, 2)) == 2
    assert sorted(index for task in balance_positions([3_000_000] * 8, 4) for index in task) == list(range(8))
