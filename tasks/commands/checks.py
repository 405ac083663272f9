"""What ``icefleet check`` tries of a worker's machine: Java, memory and scratch."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from producer.cli.check import Check
from producer.common.settings import Settings
from producer.common.sizes import size_text
from workers.runtime.machine import Budget, Machine
from workers.runtime.scratch import scratch
from workers.runtime.session import find_java


def check_worker(settings: Settings) -> Iterator[Check]:
    """Yield the checks of this machine, for a worker with one child."""
    yield Check.of("java", lambda: f"found at {find_java()}")

    def share_memory() -> str:
        budget = Budget.of(
            Machine.detect(), cores=settings.cores, heap_mb=settings.heap_mb, memory_mb=settings.memory_mb
        )
        return f"{budget.cores} cores, {size_text(budget.heap_bytes)} of heap for Spark"

    yield Check.of("memory", share_memory)

    def write_scratch() -> str:
        with scratch(Path(settings.scratch_dir) if settings.scratch_dir else None) as folder:
            (folder / "check").write_bytes(b"1")
            return f"{size_text(shutil.disk_usage(folder).free)} free in {folder.parent}"

    yield Check.of("scratch", write_scratch)
