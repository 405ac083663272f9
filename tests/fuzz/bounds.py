"""What reading any bytes may cost: processor time and memory, both looked after from outside of the reader."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

#: Seconds of processor time that one input may take; far longer ends the process, with where it was.
SECONDS = 2.0
_HANGS = 20.0
#: What the process may ask for besides what it has when everything is loaded.
_MORE_MEMORY = 1 << 30
_TAKEN, _REFUSED, _RAISED = 10, 11, 12


def bound_memory() -> None:
    """From here on this process gets little more memory than it has: who asks for more gets an error that counts."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _MORE_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def apart(run: Callable[[bytes], bool], data: bytes) -> bool:
    """Run a target on bytes in a process of its own, which native code may end by an abort; false when it did.

    Arrow throws across its own boundary at some footers, and ends the process. A unit whose worker dies is tried again
    and fails alone; no Python code can do more. A crash of any other kind is not taken.
    """
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what aborts says so at length
            status = _TAKEN if within(run, data) else _REFUSED
        except BaseException:
            status = _RAISED
        os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        assert os.WTERMSIG(ended) == signal.SIGABRT, f"it died of signal {os.WTERMSIG(ended)}"
        return False
    if os.WEXITSTATUS(ended) == _RAISED:
        return within(run, data)  # where it can be seen
    assert os.WEXITSTATUS(ended) in (_TAKEN, _REFUSED), f"it ended with {os.WEXITSTATUS(ended)}"
    return os.WEXITSTATUS(ended) == _TAKEN


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
