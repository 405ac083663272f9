"""Rows are picked evenly, however they come in batches."""

from __future__ import annotations

import numpy as np
import pytest

from workers.sorting.exchange import sample_rows


def _picked(number: int, rows: int, step: int, batch: int) -> list[int]:
    return [
        start + pick
        for start in range(0, rows, batch)
        for pick in sample_rows(number, start, min(batch, rows - start), step).tolist()
    ]


@pytest.mark.parametrize("step", [1, 2, 7, 100, 999, 5000])
def test_one_row_of_each_step_whatever_the_batches(step: int) -> None:
    whole = _picked(3, 1000, step, 1000)
    full = 1000 // step
    assert [pick // step for pick in whole][:full] == list(range(full))
    assert full <= len(whole) <= full + 1  # one more perhaps of what is left over
    for batch in (1, 13, 100, 999):
        assert _picked(3, 1000, step, batch) == whole


def test_places_within_a_step_are_all_alike() -> None:
    counts = np.bincount([pick % 10 for pick in _picked(0, 100_000, 10, 100_000)], minlength=10)
    assert counts.min() > 900


def test_of_many_files_shorter_than_a_step_some_rows_are_picked() -> None:
    found = sum(len(_picked(number, 100, 1000, 100)) for number in range(10_000))
    assert 900 < found < 1100
    assert sample_rows(0, 0, 0, 5).tolist() == []
