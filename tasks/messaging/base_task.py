"""The base classes of the fleet's tasks, and the exceptions by which a task ends without a success.

A task reveals no secret, and a broker that is away stops no work.
"""

from __future__ import annotations

import logging
import time
import traceback
from typing import Any, ClassVar, Final

from celery import Task
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from producer.common.redaction import redact

log = logging.getLogger(__name__)

#: The event that Flower shows as the state RETRY; it does not count as a retry.
RETRY_EVENT: Final = "task-retry"


class Unsuccessful(Exception):
    """The job or the unit failed: the task ends as FAILURE, with this text, and is not tried again."""

    def __repr__(self) -> str:
        """Return the text alone: the event of a failed task carries the representation."""
        return str(self)


class Unfinished(Ignore):
    """The task ends without a result for its job or unit, and sends an event of its own.

    One task id stands for every message about the same thing, and Flower takes a success for the final state of a
    task: a task whose job or unit goes on must not end as a success.
    """

    #: The events to send; the last one determines the state that is shown.
    events: ClassVar[tuple[str, ...]]
    #: Whether they show its text as the result of the task.
    has_result: ClassVar[bool] = True


class Waits(Unfinished):
    """There is nothing to do now; another message follows."""

    events = ("task-waiting",)


class Cancelled(Unfinished):
    """The job was cancelled.

    Celery's event state ranks a revocation below progress, unless a retry came in between.
    """

    events = (RETRY_EVENT, "task-revoked")


class Late(Unfinished):
    """The job has ended already; the results of its tasks stay."""

    events = ("task-revoked",)
    has_result = False  # it would replace the one that an earlier message of the task has sent


class RedactedError(Exception):
    """Stands for an error whose text held a secret, with the redacted text."""


class RedactedTask(Task):
    """Redacts results and errors, which go to Redis as events and are shown in Flower.

    An error without a secret is raised as it is, with its traceback.
    """

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        try:
            result = self.work(*args, **kwargs)
        except (Ignore, Reject, SoftTimeLimitExceeded):
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            if redact(text) == text:
                raise
            log.warning("%s", text)  # redacted like every line of the log; the events do not have it
            # Neither the error nor its cause may travel on: Celery's events show the whole chain.
            if isinstance(error, Unsuccessful):
                raise Unsuccessful(redact(str(error))) from None
            raise _redacted_retry(error) if isinstance(error, Retry) else _redacted(error) from None
        return redact(result) if isinstance(result, str) else result

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """Do the work of the task; the caller redacts the result and the errors."""
        return self.run(*args, **kwargs)

    def send_event(self, type_: str, *args: Any, **fields: Any) -> None:
        """Send an event if the broker takes it now: the task's work matters more than its display."""
        try:
            super().send_event(type_, *args, **{"retry": False, **fields})
        except Exception as error:  # each broker's client has errors of its own
            log.warning("%s: the event %s is not sent: %s", self.request.id, type_, redact(str(error)))

    def retry(self, *args: Any, **options: Any) -> Exception:
        """Retry as Celery does, but requeue a message that cannot be sent again.

        Celery drops it (``requeue=False``), and the message would be lost.
        """
        try:
            again: Exception = super().retry(*args, **options)
        except Reject as rejected:
            raise Reject(rejected.reason, requeue=True) from rejected
        return again


class QuietTask(RedactedTask):
    """A periodic task that sends events only when it reports a success (:meth:`send_success`), or fails.

    Sweeps that find nothing would add a line to Flower's list each minute and bury the lines of jobs.
    """

    abstract = True
    send_events = False

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task; a failure sends events."""
        started = time.time()
        try:
            return super().work(*args, **kwargs)
        except Exception as error:
            text = redact("".join(traceback.format_exception(error)))
            self._send_start(started)
            self.send_event("task-failed", exception=redact(repr(error)), traceback=text)
            raise

    def send_success(self, result: str, started: float) -> str:
        """Send the events of a run that began at ``started`` and changed something; return the result."""
        self._send_start(started)
        self.send_event("task-succeeded", result=repr(redact(result)), runtime=time.time() - started)
        return result

    def _send_start(self, started: float) -> None:
        self.send_event("task-received", name=self.name, args="()", kwargs="{}", retries=0, timestamp=started)
        self.send_event("task-started", timestamp=started)


def _redacted_retry(retry: Retry) -> Retry:
    cause = _redacted(retry.exc) if retry.exc is not None else None
    return Retry(retry.message and redact(retry.message), exc=cause, when=retry.when, sig=retry.sig)


def _redacted(error: BaseException) -> RedactedError:
    return RedactedError(f"{type(error).__name__}: {redact(str(error))}")
