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
    _glibc("mallopt", _M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Give back now what was freed: worth its milliseconds after work that needed much more than what follows."""
    _glibc("malloc_trim", 0)


def _glibc(function: str, *arguments: int) -> None:
    known = getattr(ctypes.CDLL(None), function, None)
    if known is not None:
        known(*arguments)
