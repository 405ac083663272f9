"""What this machine has, and what of it one worker may use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

_MB = 1 << 20
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_CGROUP_CPU = "/sys/fs/cgroup/cpu.max"


@dataclass(frozen=True, slots=True)
class Machine:
    """Cores and bytes of memory, as the cgroup allows."""

    cores: int
    memory: int

    @classmethod
    def detect(cls) -> Self:
        """Look at this machine."""
        memory = psutil.virtual_memory().total
        for path in _CGROUP_LIMITS:
            text = _read(path)
            if text.isdigit():
                memory = min(memory, int(text))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        quota, _, period = _read(_CGROUP_CPU).partition(" ")
        if quota.isdigit() and period.isdigit():
            cores = min(cores, max(1, int(quota) // int(period)))
        return cls(cores, memory)


@dataclass(frozen=True, slots=True)
class Budget:
    """What one worker child may use: cores, and bytes of Spark's heap and of what is taken from it."""

    cores: int
    heap_bytes: int
    #: Deletes of one match that are held in memory and broadcast; more are shuffled and spilled.
    broadcast_bytes: int
    #: Key columns that a scan holds at a time, for each core.
    batch_bytes: int

    @property
    def shuffle_tasks(self) -> int:
        """Into how many parts Spark shuffles, and so the most tasks that write."""
        return self.cores * 4

    @classmethod
    def of(cls, machine: Machine, *, cores: int = 0, heap_mb: int = 0, memory_mb: int = 0, children: int = 1) -> Self:
        """Share a machine among ``children``; zeros are chosen by the machine.

        Raises:
            ValueError: more cores or memory are asked for than there are.
        """
        memory = min(memory_mb * _MB, machine.memory) if memory_mb else machine.memory
        share = memory // children
        heap = heap_mb * _MB if heap_mb else min(max(share // 3, 512 * _MB), 4096 * _MB)
        if heap > share:
            raise ValueError(f"a heap of {heap // _MB} MB does not fit into {share // _MB} MB of memory")
        return cls(
            cores=cores or max(1, machine.cores // children),
            heap_bytes=heap,
            broadcast_bytes=heap // 16,
            batch_bytes=32 * _MB,
        )


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
