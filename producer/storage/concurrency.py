"""How many requests to storage a process makes at a time: one limit for all that reads, writes and deletes files."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Final

#: Enough where a request takes 50 ms: two cores decode small files about as fast as so many requests bring them.
DEFAULT_REQUESTS: Final = 32


class RequestLimit:
    """A number of requests at a time, and the threads that make those whose answers are needed later."""

    def __init__(self, requests: int) -> None:
        self.requests: Final = requests
        #: Held while a request waits for its answer.
        self.slots: Final = threading.BoundedSemaphore(requests)
        self.pool: Final = ThreadPoolExecutor(requests, thread_name_prefix="object-store")


_limit = RequestLimit(DEFAULT_REQUESTS)


def request_limit() -> RequestLimit:
    """Return this process's limit."""
    return _limit


def limit_requests(requests: int) -> None:
    """Make so many requests at a time from now on."""
    if requests != _limit.requests:
        _renew(requests)


def _renew(requests: int) -> None:
    global _limit
    _limit = RequestLimit(requests)


# A forked process has none of the threads, and nobody there gives back what its parent holds.
os.register_at_fork(after_in_child=lambda: _renew(_limit.requests))
