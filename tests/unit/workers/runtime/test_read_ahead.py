"""Reading ahead: the same values, the same errors, and no thread left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from workers.runtime.read_ahead import ahead


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ahead"]


def test_the_same_values_in_order() -> None:
    assert list(ahead(range(1000), 3)) == list(range(1000))
    assert list(ahead([], 3)) == []
    assert threads() == []


def test_values_are_made_before_they_are_asked_for() -> None:
    made: list[int] = []

    def values() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            yield number

    found = ahead(values(), 3)
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

    found = ahead(values(), 3)
    assert next(found) == 1
    with pytest.raises(ValueError, match="torn"):
        next(found)
    assert threads() == []


def test_giving_up_ends_the_thread() -> None:
    found = ahead(iter(range(1_000_000)), 2)
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert threads() == []
