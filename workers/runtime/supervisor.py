"""Spark's work in a thread of its own, so that the thread that waits for it can be interrupted at any moment.

An exception that a signal handler raises inside a call to the JVM would be taken for a lost connection, and the call
made again. The waiting thread makes no such call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from workers.runtime.lazy_session import LazySession

log = logging.getLogger(__name__)

T = TypeVar("T")

_INTERVAL: Final = 0.5
_PATIENCE: Final = 30.0


class Stop(threading.Event):
    """Says that nobody waits for the work any more. A Spark task gets one that is never set: Spark ends it."""

    def __reduce__(self) -> tuple[type[Stop], tuple[()]]:
        return Stop, ()


def supervised(
    session: LazySession,
    group: str,
    work: Callable[[Stop], T],
    tick: Callable[[], None],
    interval: float = _INTERVAL,
) -> T:
    """Run ``work`` under a Spark job group, and ``tick`` every ``interval`` seconds meanwhile.

    Whatever is raised here, by ``tick`` or by a signal handler, sets the event that ``work`` is given, cancels the jobs
    of the group, waits until ``work`` has ended (half a minute at most), and goes on to the caller.
    """
    stop = Stop()
    outcome: list[T] = []
    failure: list[BaseException] = []
    ended = threading.Event()

    def run() -> None:
        try:
            outcome.append(work(stop))
        except BaseException as error:
            failure.append(error)
        finally:
            ended.set()

    session.begin(group, stop)
    thread = threading.Thread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(interval):
            tick()
    except BaseException:
        stop.set()
        _cancel(session, group, ended)
        raise
    thread.join()
    if failure:
        raise failure[0]
    tick()
    return outcome[0]


def _cancel(session: LazySession, group: str, ended: threading.Event) -> None:
    """Cancel until the work has ended: between two jobs there is nothing to cancel."""
    for _ in range(int(_PATIENCE / _INTERVAL)):
        try:
            session.cancel()
        except Exception:  # whatever a JVM that is gone raises: the work ends with it
            log.debug("the jobs of %s cannot be cancelled", group, exc_info=True)
        if ended.wait(_INTERVAL):
            return
    log.warning("Spark job group %s did not end within %.0f s", group, _PATIENCE)
