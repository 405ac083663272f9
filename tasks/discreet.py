"""Tasks that tell no secrets: their results and errors go to Redis as events, and Flower shows them."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from celery import Task
from celery.exceptions import Ignore, Reject, Retry, SoftTimeLimitExceeded

from producer.masking import masked
from tasks.verdicts import Unsuccessful

log = logging.getLogger(__name__)


class Hidden(Exception):
    """An error whose text held a secret; the rest of the text is this one's."""


class DiscreetTask(Task):
    """Masks what leaves a task. An error that holds no secret leaves as it is, with the traceback that helps."""

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


def _again(retry: Retry) -> Retry:
    cause = _hidden(retry.exc) if retry.exc is not None else None
    return Retry(retry.message and masked(retry.message), exc=cause, when=retry.when, sig=retry.sig)


def _hidden(error: BaseException) -> Hidden:
    return Hidden(f"{type(error).__name__}: {masked(str(error))}")
