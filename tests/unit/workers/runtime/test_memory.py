"""Allocators return what is freed between blocks that stay."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import psutil
from workers.runtime.memory import use_system_allocator, trim_memory

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
