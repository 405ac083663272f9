"""Garbage collection, where it would cost more than it could find."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles of dead objects in this process meanwhile; works as a decorator too.

    For what reads whole snapshots: their entries are millions of objects that stay, and each search goes through all
    of them again (of 4.4 s that 110,000 entries took to read, 2.8 were searches). Objects outside of cycles, and these
    are, go as ever when nobody refers to them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:  # of several threads here, the first to come is the one that puts it right
            gc.enable()
