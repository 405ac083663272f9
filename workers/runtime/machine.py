"""The cores and the memory of this machine, the budget of one worker child, and the memory that its processes take."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import psutil
import pyarrow as pa

_MB: Final = 1 << 20
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: Spark does not start with less.
_MIN_HEAP: Final = 512 * _MB
#: More only makes garbage collection longer: what is large is spilled.
_MAX_HEAP: Final = 4096 * _MB

_ARENAS: Final = 2
#: The parameter of glibc's ``mallopt`` that limits the number of arenas.
_M_ARENA_MAX: Final = -8
#: The allocators of :func:`use_system_allocator` in a process that is still to be started, by its environment.
ALLOCATOR_ENVIRONMENT: Final = {"ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": str(_ARENAS)}


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and bytes of memory, as affinity and control groups allow."""

    cores: int
    memory: int

    @classmethod
    def detect(cls, cgroups: Path = _CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Self:
        """Return the machine that this process runs on.

        Args:
            cgroups: Where control groups are mounted (version 1 or 2).
            own: Where the system says which of them this process is in.
        """
        memory = psutil.virtual_memory().total
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        for group in _groups(cgroups, own):
            for limit in ("memory.max", "memory.limit_in_bytes"):
                text = _read(group / limit)
                memory = min(memory, int(text)) if text.isdigit() else memory
            quota, _, period = _read(group / "cpu.max").partition(" ")
            quota, period = quota or _read(group / "cpu.cfs_quota_us"), period or _read(group / "cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit():
                cores = min(cores, max(1, int(quota) // int(period)))
        return cls(cores, memory)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one worker child may use: cores, and bytes of Spark's heap and of its parts."""

    cores: int
    heap_bytes: int
    #: Deletes of one match that Spark broadcasts where they are too many for an index; more are shuffled and spilled.
    broadcast_bytes: int
    #: Key columns that a scan holds at a time, for each core.
    batch_bytes: int
    #: Rows that a rewrite buffers for a row group, or sorts at a time, for each core.
    rows_bytes: int
    #: Deletes of one match that become an index in scratch: as much as the kernel can keep of files beside the heap.
    index_bytes: int
    #: All that the child, its JVM and its tasks may use; 0 if unknown.
    memory_bytes: int = 0

    @property
    def idle_bytes(self) -> int:
        """The memory that may be in use between two units: the heap, and half of the rest; any more was not freed."""
        return self.heap_bytes + (self.memory_bytes - self.heap_bytes) // 2 if self.memory_bytes else 0

    @property
    def shuffle_tasks(self) -> int:
        """The number of partitions that Spark shuffles into, and so the most tasks that write."""
        return self.cores * 4

    @classmethod
    def of(cls, machine: Machine, *, cores: int = 0, heap_mb: int = 0, memory_mb: int = 0, children: int = 1) -> Self:
        """Share a machine among ``children``; zeros are derived from the machine.

        Raises:
            ValueError: the request exceeds the machine, or is less than Spark needs.
        """
        if min(cores, heap_mb, memory_mb) < 0 or children < 1:
            raise ValueError("cores, heap and memory cannot be negative, and there is one child at least")
        memory = min(memory_mb * _MB, machine.memory) if memory_mb else machine.memory
        share = memory // children
        heap = heap_mb * _MB if heap_mb else min(max(share // 3, _MIN_HEAP), _MAX_HEAP)
        if heap < _MIN_HEAP:
            raise ValueError(f"a heap of {heap // _MB} MB is less than Spark needs: {_MIN_HEAP // _MB} MB at least")
        if heap > share:
            raise ValueError(f"a heap of {heap // _MB} MB does not fit into {share // _MB} MB of memory")
        cores = cores or max(1, machine.cores // children)
        return cls(
            cores=cores,
            heap_bytes=heap,
            broadcast_bytes=heap // 16,
            # A batch is held several times over while it is read, decoded and filtered.
            batch_bytes=min(max((share - heap) // (16 * cores), 2 * _MB), 32 * _MB),
            # Held in Arrow, and encoded beside it.
            rows_bytes=min(max((share - heap) // (8 * cores), 8 * _MB), 256 * _MB),
            # The other half is for what tasks hold in memory.
            index_bytes=max((share - heap) // 2, 8 * _MB),
            memory_bytes=share,
        )


def use_system_allocator() -> None:
    """Use allocators that return freed memory in this process; without glibc only Arrow's is changed.

    Arrow's own allocator keeps what it was given, and so does each of the arenas that glibc makes for threads: 200 MB
    of 1,000 in a conversion by text keys, and it is no faster.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    _glibc("mallopt", _M_ARENA_MAX, _ARENAS)


def trim_memory() -> None:
    """Return freed memory now: worth its milliseconds after work that needed much more than what follows."""
    _glibc("malloc_trim", 0)


def process_tree_memory() -> int:
    """Return the bytes that this process, its JVM and the JVM's processes take, shared memory counted once."""
    own = psutil.Process()
    return sum(_proportional_memory(process) for process in (own, *own.children(recursive=True)))


def _groups(cgroups: Path, own: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups and of all groups around them."""
    yield from (cgroups, cgroups / "memory", cgroups / "cpu")
    for line in _read(own).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        top = cgroups / controllers if controllers else cgroups
        parts = [part for part in path.split("/") if part and part != ".."]
        for length in range(1, len(parts) + 1):
            yield top.joinpath(*parts[:length])


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _glibc(function: str, *arguments: int) -> None:
    found = getattr(ctypes.CDLL(None), function, None)
    if found is not None:
        found(*arguments)


def _proportional_memory(process: psutil.Process) -> int:
    """Return the bytes of a process; where the system does not say how they are shared, all of them."""
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.rss))
    except psutil.AccessDenied:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0
