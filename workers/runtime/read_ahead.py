"""Reading ahead: one thread decodes while another encodes, since Arrow lets go of Python's lock in both."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from queue import Empty, Full, Queue
from typing import Final, TypeVar

T = TypeVar("T")

_INTERVAL: Final = 0.1


def ahead(values: Iterable[T], depth: int) -> Iterator[T]:
    """The same values, of which up to ``depth`` are made before they are asked for, in a thread of their own.

    What the thread raises is raised here. It ends with the iteration, also with one that is given up.
    """
    queue: Queue[tuple[bool, T | BaseException | None]] = Queue(depth)
    given_up = threading.Event()

    def put(last: bool, value: T | BaseException | None) -> bool:
        while not given_up.is_set():
            try:
                queue.put((last, value), timeout=_INTERVAL)
                return True
            except Full:
                continue
        return False

    def run() -> None:
        try:
            for value in values:
                if not put(False, value):
                    return
        except BaseException as error:
            put(True, error)
        else:
            put(True, None)

    thread = threading.Thread(target=run, name="ahead", daemon=True)
    thread.start()
    try:
        while True:
            try:
                last, value = queue.get(timeout=_INTERVAL)
            except Empty:
                continue
            if not last:
                yield value  # type: ignore[misc]
            elif value is None:
                return
            else:
                raise value  # type: ignore[misc]
    finally:
        given_up.set()
        thread.join()
