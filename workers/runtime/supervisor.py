"""Spark's work in a thread of its own, so that the thread that waits for it can be interrupted at any moment.

An exception that a signal handler raises inside a call to the JVM would be taken for a lost connection, and the call
made again. The waiting thread makes no such call.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Final, TypeAlias, TypeVar

from workers.runtime.bulk_io import give_up
from workers.runtime.context import LazySession, UnitContext
from workers.runtime.errors import reraise_task_error
from workers.runtime.machine import use_system_allocator
from workers.runtime.scratch import SPLITS, files_done

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Called with the number of data files that are done, and of all data files of the unit.
Progress: TypeAlias = Callable[[int, int], None]

_INTERVAL: Final = 0.5
_CANCEL_SECONDS: Final = 30.0


def run_unit(
    context: UnitContext,
    name: str,
    work: Callable[[], T],
    splits: Mapping[int, int],
    progress: Progress | None,
    record: str = SPLITS,
) -> T:
    """Run the work on a unit under a Spark job group of its own, and report its progress.

    Whatever is raised in this thread, by ``progress`` or by a signal handler, sets the context's cancellation, has no
    request to storage repeated, cancels the jobs of the group, waits until the work has ended (half a minute at most),
    and goes on to the caller.

    ``splits`` has the number of splits of each of the unit's data files, which the work may change; those that are done
    are counted under ``record`` in scratch. ``progress`` is called in this thread whenever that number has changed.

    Raises:
        TaskFailed: A Spark task failed; an error that its data caused is raised as it is.
    """
    use_system_allocator()
    group = f"icefleet {name} {secrets.token_hex(4)}"
    outcome: Future[T] = Future()
    ended = threading.Event()
    last = -1

    def tick() -> None:
        nonlocal last
        done = files_done(context.scratch, splits, record)
        if progress is not None and done != last:
            last = done
            progress(done, len(splits))

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)
        finally:
            ended.set()

    tick()
    context.session.begin(group)
    thread = threading.Thread(target=run, name=group, daemon=True)
    thread.start()
    try:
        while not ended.wait(_INTERVAL):
            tick()
    except BaseException:
        context.cancellation.set()
        give_up(context.io)
        _cancel(context.session, group, ended)
        raise
    thread.join()
    with reraise_task_error(context.scratch):
        result = outcome.result()
    tick()
    return result


def _cancel(session: LazySession, group: str, ended: threading.Event) -> None:
    """Cancel until the work has ended: between two jobs there is nothing to cancel."""
    for _ in range(int(_CANCEL_SECONDS / _INTERVAL)):
        try:
            session.cancel()
        except Exception:  # whatever a dead JVM raises: the work ends with it
            log.debug("the jobs of %s cannot be cancelled", group, exc_info=True)
        if ended.wait(_INTERVAL):
            return
    log.warning("Spark job group %s did not end within %.0f s", group, _CANCEL_SECONDS)
