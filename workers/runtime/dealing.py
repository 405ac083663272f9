"""Dealing of work to tasks that run side by side, so that they end at about the same time."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


def dealt(costs: Sequence[int], most: int) -> list[list[int]]:
    """Indexes of the costs by task: the dearest first, each to the least laden of ``most`` tasks; none is empty."""
    tasks: list[list[int]] = [[] for _ in range(max(1, min(most, len(costs))))]
    loads = [(0, task) for task in range(len(tasks))]
    for index in sorted(range(len(costs)), key=lambda index: -costs[index]):
        load, task = loads[0]
        tasks[task].append(index)
        # What costs nothing counts too, or one task would get all of it.
        heapq.heapreplace(loads, (load + costs[index] + 1, task))
    return [task for task in tasks if task]
