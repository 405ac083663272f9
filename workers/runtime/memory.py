"""Memory of this process and its children: allocators that return what is freed, and how much is in use.

Arrow's own allocator keeps what it was given, and so does each of the arenas that glibc makes for threads: 200 MB of
1,000 in a conversion by text keys, and it is no faster.
"""

from __future__ import annotations

import ctypes
from typing import Final

import psutil
import pyarrow as pa

_ARENAS: Final = 2
#: The parameter of glibc's ``mallopt`` that limits the number of arenas.
_M_ARENA_MAX: Final = -8

#: The same allocators in a process that is still to be started, by its environment.
ALLOCATOR_ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": str(_ARENAS)}


def use_system_allocator() -> None:
    """Use allocators that return freed memory in this process; without glibc only Arrow's is changed."""
    pa.set_memory_pool(pa.system_memory_pool())
    _glibc("mallopt", _M_ARENA_MAX, _ARENAS)


def trim_memory() -> None:
    """Return freed memory now: worth its milliseconds after work that needed much more than what follows."""
    _glibc("malloc_trim", 0)


def process_tree_memory() -> int:
    """Return the bytes that this process, its JVM and the JVM's processes take, shared memory counted once."""
    own = psutil.Process()
    return sum(_proportional_memory(process) for process in (own, *own.children(recursive=True)))


def _glibc(function: str, *arguments: int) -> None:
    known = getattr(ctypes.CDLL(None), function, None)
    if known is not None:
        known(*arguments)


def _proportional_memory(process: psutil.Process) -> int:
    """Bytes of a process; where the system does not say how they are shared, all of them."""
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
