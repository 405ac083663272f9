"""Work side by side: balanced tasks, and reading ahead with the same values and errors and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.runtime.parallel import balance, read_ahead


@given(costs=st.lists(st.integers(0, 1000), max_size=40), most=st.integers(1, 9))
def test_each_once_and_about_even(costs: list[int], most: int) -> None:
    tasks = balance(costs, most)
    assert sorted(index for task in tasks for index in task) == list(range(len(costs)))
    assert len(tasks) == min(most, len(costs))
    assert all(tasks)
    loads = [sum(costs[index] + 1 for index in task) for task in tasks]
    assert not loads or max(loads) - min(loads) <= max(costs) + 1


def test_what_costs_nothing_is_shared_too() -> None:
    assert [len(task) for task in balance([0] * 12, 4)] == [3, 3, 3, 3]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read-ahead")]


def test_the_same_values_in_order() -> None:
    assert list(read_ahead(range(1000), 3)) == list(range(1000))
    assert list(read_ahead([], 3)) == []
    assert threads() == []


def test_values_are_made_before_they_are_asked_for() -> None:
    made: list[int] = []

    def values() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    found = read_ahead(values(), 3)
    assert next(found) == 0
    deadline = time.monotonic() + 5
    while len(made) < 5 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert len(made) == 5, "one taken, three waiting, one in hand"
    assert list(found) == list(range(1, 10))


def test_an_error_comes_after_the_values_before_it() -> None:
    def values() -> Iterator[int]:
        yield 1
        raise ValueError("torn")

    found = read_ahead(values(), 3)
    assert next(found) == 1
    with pytest.raises(ValueError, match="torn"):
        next(found)
    assert threads() == []


def test_giving_up_ends_the_thread() -> None:
    found = read_ahead(iter(range(1_000_000)), 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threads() == []
