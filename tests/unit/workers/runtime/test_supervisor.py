"""Work in a thread of its own: what is raised in the thread that waits ends the work, and reaches the caller."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from workers.runtime.context import Cancellation, LazySession, UnitContext
from workers.runtime.machine import Budget, Machine
from workers.runtime.parallel import run_tasks
from workers.runtime.scratch import record_split
from workers.runtime.supervisor import run_unit


class TimeIsUp(Exception):
    pass


def _no_session() -> object:
    raise AssertionError("one process does the work")


def test_an_error_of_the_progress_is_not_replaced_by_that_of_the_cancelled_work(tmp_path: Path) -> None:
    budget = Budget.of(Machine(1, 4 << 30))
    session = LazySession(_no_session, alone=True)  # type: ignore[arg-type]
    context = UnitContext(session, PyArrowFileIO(), budget, tmp_path, Cancellation())
    ended = []

    def work(number: int) -> Iterator[None]:
        record_split(tmp_path, number)
        try:
            for _ in context.cancellation.until_set(itertools.repeat(None)):
                sleep(0.01)
        finally:
            ended.append(number)
        yield

    def progress(done: int, files: int) -> None:
        if done:
            raise TimeIsUp

    with pytest.raises(TimeIsUp):
        run_unit(context, "unit", lambda: run_tasks(context, 1, work), {0: 1}, progress)
    assert ended == [0]
