"""Allocators that give back what is freed, for processes that live long and hold much for a moment only.

Arrow's own keeps what it was given, and so does each of the arenas that glibc makes for threads: 200 MB of 1,000 in a
conversion by text keys, and it is no faster.
"""

from __future__ import annotations

import ctypes
from typing import Final

import pyarrow as pa

_ARENAS: Final = 2
#: The parameter of glibc's ``mallopt`` that limits the number of arenas.
_M_ARENA_MAX: Final = -8

#: What a process that is still to be started needs in its environment.
ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": str(_ARENAS)}


def give_back() -> None:
    """Do the same in this process; where there is no glibc, only Arrow is told."""
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS)
