"""Requests to object stores: repeated with backoff and jitter while the store is busy or away, and counted."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn, TypeVar

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_attempt,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from producer.storage.concurrency import request_limit
from producer.storage.errors import StorageBusy, storage_error

T = TypeVar("T")

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 8
_MAX_WAIT: Final = 10.0  # seconds
#: Seconds after which a request is not repeated: a store that does not answer at all takes long for each attempt.
_MAX_SECONDS: Final = 60.0
#: Answers about a file that is missing because all of its bucket is.
_NO_BUCKET: Final = ("NoSuchBucket", "ContainerNotFound", "container does not exist")


class RequestCounts:
    """How many requests of each kind were made, and how many of them were repetitions (:data:`REPEATED`).

    A process works on one job at a time, so what it counts while it does is the job's.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        #: Where another process leaves its counts for the one that works on the job, one kind a line.
        self._file: Path | None = None
        self._is_owner = True

    def add(self, kind: str) -> None:
        """Count one request."""
        if self._is_owner:
            with self._lock:
                self._counts[kind] += 1
        elif self._file is not None:
            with suppress(FileNotFoundError), self._file.open("ab", buffering=0) as file:  # the unit has ended
                file.write(f"{kind}\n".encode())

    def take(self) -> Counter[str]:
        """Return the counts since the last time."""
        with self._lock:
            taken, self._counts = self._counts, Counter()
        return taken

    @contextmanager
    def shared(self, folder: Path) -> Iterator[None]:
        """Count here what processes request to which file access is pickled within the block."""
        self._file = folder / "requests"
        self._file.touch()
        try:
            yield
        finally:
            with self._lock, suppress(FileNotFoundError):
                self._counts.update(self._file.read_text().split("\n")[:-1])
            self._file = None

    def sharing(self) -> tuple[int, Path] | None:
        """Return what :meth:`share` needs in another process."""
        return (os.getpid(), self._file) if self._is_owner and self._file is not None else None

    def share(self, sharing: tuple[int, Path] | None) -> None:
        """Have the requests of this process counted by the one that works on the job, unless that is this one."""
        if sharing is not None and sharing[0] != os.getpid():
            self._is_owner, self._file = False, sharing[1]


COUNTS: Final = RequestCounts()
#: What repetitions count as, beside their kind.
REPEATED: Final = "repeated"


def request(kind: str, location: str, call: Callable[[], T], *, given_up: threading.Event) -> T:
    """Return the result of a request that can be repeated without harm, and is until ``given_up`` is set.

    Raises:
        FileNotFoundError: There is no such object.
        FileExistsError: There is one, and it was to be a new one.
        AccessDenied: The store denies access.
        StorageBusy: The store is busy or away, and was so for eight attempts or for a minute.
        StorageError: The store refuses the request.
    """
    retrying = Retrying(
        retry=retry_if_exception_type(StorageBusy),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(_MAX_SECONDS) | stop_when_event_set(given_up),
        sleep=sleep_using_event(given_up),
        wait=wait_random_exponential(multiplier=0.1, max=_MAX_WAIT),  # with full jitter
        before_sleep=_note_retry,
        retry_error_callback=_give_up,
    )
    result: T = retrying(_request, kind, location, call)
    return result


def request_once(kind: str, location: str, call: Callable[[], T]) -> T:
    """Return the result of a request that is not repeated here; errors are those of :func:`request`.

    It does not count among the requests at a time: it may wait for others, as an upload does whose bytes are read.
    """
    COUNTS.add(kind)
    try:
        return call()
    except FileNotFoundError as error:
        if any(sign in str(error) for sign in _NO_BUCKET):
            raise storage_error(kind, location, error) from error
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location) from error
    except (AlreadyExistsError, PreconditionError) as error:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), location) from error
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise storage_error(kind, location, error, denied=True) from error
    except BaseError as error:
        raise storage_error(kind, location, error) from error


def _request(kind: str, location: str, call: Callable[[], T]) -> T:
    with request_limit().slots:
        return request_once(kind, location, call)


def _give_up(state: RetryCallState) -> NoReturn:
    """Raise the last error of a request that was repeated, and say how often and for how long."""
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, StorageBusy)
    tried = f"after {state.attempt_number} attempts in {state.seconds_since_start or 0.0:.0f} s"
    raise StorageBusy(error.errno, f"{error.strerror}, {tried}", error.filename) from error


def _note_retry(state: RetryCallState) -> None:
    COUNTS.add(REPEATED)
    error = state.outcome.exception() if state.outcome is not None else None
    log.info("attempt %s: %s", state.attempt_number, error)
