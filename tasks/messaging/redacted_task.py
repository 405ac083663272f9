"""What all tasks of the fleet have in common: they tell no secrets, and a broker that is away stops no work."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from producer.common.redaction import masked
from tasks.messaging.task_states import Unsuccessful

log = logging.getLogger(__name__)


class Hidden(Exception):
    """An error whose text held a secret; the rest of the text is this one's."""


class DiscreetTask(Task):
    """Masks what leaves a task: results and errors go to Redis as events, and Flower shows them.

    An error that holds no secret leaves as it is, with the traceback that helps.
    """

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task."""
        try:
            result = self.work(*args, **kwargs)
        except (Ignore, Reject, SoftTimeLimitExceeded):
            raise
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            if masked(told) == told:
                raise
            log.warning("%s", told)  # masked like every line of the log; the events will not have it
            # Neither the error nor what it came from may travel on: whoever is told shows the whole chain.
            if isinstance(error, Unsuccessful):
                raise Unsuccessful(masked(str(error))) from None
            raise _again(error) if isinstance(error, Retry) else _hidden(error) from None
        return masked(result) if isinstance(result, str) else result

    def work(self, *args: Any, **kwargs: Any) -> Any:
        """What the task does, and may tell of as it likes."""
        return self.run(*args, **kwargs)

    def send_event(self, type_: str, *args: Any, **fields: Any) -> None:
        """Send an event if the broker takes it now: what a task does matters more than that somebody sees it."""
        try:
            super().send_event(type_, *args, **{"retry": False, **fields})
        except Exception as error:  # each broker's client has errors of its own
            log.warning("%s: the event %s is not sent: %s", self.request.id, type_, masked(str(error)))

    def retry(self, *args: Any, **options: Any) -> Exception:
        """As Celery's; a message that cannot be sent again stays what it is and is delivered again.

        Celery drops it (``requeue=False``), and nobody would know of it any more.
        """
        try:
            again: Exception = super().retry(*args, **options)
        except Reject as rejected:
            raise Reject(rejected.reason, requeue=True) from rejected
        return again


def _again(retry: Retry) -> Retry:
    cause = _hidden(retry.exc) if retry.exc is not None else None
    return Retry(retry.message and masked(retry.message), exc=cause, when=retry.when, sig=retry.sig)


def _hidden(error: BaseException) -> Hidden:
    return Hidden(f"{type(error).__name__}: {masked(str(error))}")
