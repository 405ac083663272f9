"""Dealing of work to tasks: each piece once, about even."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.runtime.dealing import dealt


@given(costs=st.lists(st.integers(0, 1000), max_size=40), most=st.integers(1, 9))
def test_each_once_and_about_even(costs: list[int], most: int) -> None:
    tasks = dealt(costs, most)
    assert sorted(index for task in tasks for index in task) == list(range(len(costs)))
    assert len(tasks) == min(most, len(costs))
    assert all(tasks)
    loads = [sum(costs[index] + 1 for index in task) for task in tasks]
    assert not loads or max(loads) - min(loads) <= max(costs) + 1


def test_what_costs_nothing_is_shared_too() -> None:
    assert [len(task) for task in dealt([0] * 12, 4)] == [3, 3, 3, 3]
