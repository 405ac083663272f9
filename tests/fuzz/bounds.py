"""What reading any bytes may cost: processor time and memory, both looked after from outside of the reader."""

from __future__ import annotations

import faulthandler
import resource
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds of processor time that one input may take; far longer ends the process, with where it was.
SECONDS = 2.0
_HANGS = 20.0
#: What the process may ask for besides what it has when everything is loaded.
_MORE_MEMORY = 1 << 30


def bound_memory() -> None:
    """From here on this process gets little more memory than it has: who asks for more gets an error that counts."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def within(run: Callable[[bytes], bool], data: bytes) -> bool:
    """Run a target on bytes.

    Raises:
        AssertionError: it took too long.
    """
    faulthandler.dump_traceback_later(_HANGS, exit=True)
    started = time.process_time()
    try:
        taken = run(data)
    finally:
        faulthandler.cancel_dump_traceback_later()
    spent = time.process_time() - started
    assert spent < SECONDS, f"{spent:.1f} s for {len(data)} bytes"
    return taken
