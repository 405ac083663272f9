"""Shares of a machine: what a worker may take, and what it may not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from workers.runtime import machine
from workers.runtime.machine import Budget, Machine

MB = 1 << 20
GB = 1 << 30


@pytest.mark.parametrize(
    ("memory", "children", "heap"),
    [
        (1 * GB, 1, 512 * MB),  # no less than Spark needs
        (6 * GB, 1, 2 * GB),  # a third
        (64 * GB, 1, 4 * GB),  # no more than pays
        (12 * GB, 2, 2 * GB),
    ],
)
def test_the_heap_follows_the_memory(memory: int, children: int, heap: int) -> None:
    budget = Budget.of(Machine(4, memory), children=children)
    assert budget.heap_bytes == heap
    assert 0 < budget.broadcast_bytes < heap // 8
    assert 0 < budget.batch_bytes < heap


def test_settings_win_over_the_machine() -> None:
    budget = Budget.of(Machine(8, 16 * GB), cores=3, heap_mb=700, memory_mb=1000)
    assert (budget.cores, budget.heap_bytes) == (3, 700 * MB)


def test_cores_are_shared_and_never_none() -> None:
    assert [Budget.of(Machine(8, 64 * GB), children=n).cores for n in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert Budget.of(Machine(8, 64 * GB)).shuffle_tasks == 32


@pytest.mark.parametrize(
    ("memory", "options", "sentence"),
    [
        (8 * GB, {"heap_mb": 9000}, "a heap of 9000 MB does not fit into 8192 MB"),
        (8 * GB, {"heap_mb": 2000, "memory_mb": 1000}, "2000 MB does not fit into 1000 MB"),
        (1 * GB, {"children": 4}, "512 MB does not fit into 256 MB"),
    ],
)
def test_more_than_there_is(memory: int, options: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Budget.of(Machine(4, memory), **options)


def test_more_memory_than_the_machine_has_is_the_machines() -> None:
    assert Budget.of(Machine(4, 3 * GB), memory_mb=100_000).heap_bytes == 1 * GB


def test_this_machine() -> None:
    found = Machine.detect()
    assert found.cores >= 1
    assert found.memory > 100 * MB


GROUPS = {
    "nothing": ({}, "", 64, False),
    "no limit": ({"memory.max": "max", "cpu.max": "max 100000"}, "0::/", 64, False),
    "container": ({"memory.max": str(GB), "cpu.max": "250000 100000"}, "0::/", 2, True),
    "half a core": ({"cpu.max": "50000 100000"}, "0::/", 1, False),
    "service": ({"system.slice/a.service/memory.max": str(GB)}, "0::/system.slice/a.service", 64, True),
    "group around it": ({"system.slice/memory.max": str(GB)}, "0::/system.slice/a.service", 64, True),
    "another service": ({"system.slice/b.service/memory.max": "1"}, "0::/system.slice/a.service", 64, False),
    "version 1": (
        {
            "memory/memory.limit_in_bytes": str(GB),
            "cpu/cpu.cfs_quota_us": "300000",
            "cpu/cpu.cfs_period_us": "100000",
        },
        "5:memory:/\n4:cpu:/",
        3,
        True,
    ),
    "version 1, no limit": (
        {"memory/memory.limit_in_bytes": str(1 << 62), "cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"},
        "5:memory:/",
        64,
        False,
    ),
}


@pytest.mark.parametrize(("files", "own", "cores", "limited"), GROUPS.values(), ids=GROUPS)
def test_a_control_group_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], own: str, cores: int, limited: bool
) -> None:
    for name, text in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(f"{text}\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    found = Machine.detect(tmp_path / "cgroup", tmp_path / "own")
    assert found.cores == cores
    assert (found.memory == GB) is limited


@pytest.mark.parametrize("options", [{"heap_mb": 511}, {"cores": -1}, {"children": 0}, {"memory_mb": -5}], ids=str)
def test_less_than_is_needed(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"Spark needs|negative"):
        Budget.of(Machine(4, 8 * GB), **options)


SCRIPT = """
import psutil
from workers.runtime.machine import use_system_allocator, trim_memory

use_system_allocator()
blocks = [bytes(50_000) for _ in range(4_000)]
kept = blocks[::40]
del blocks
before = psutil.Process().memory_info().rss
trim_memory()
print(before - psutil.Process().memory_info().rss)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc is told to")
def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100_000_000
