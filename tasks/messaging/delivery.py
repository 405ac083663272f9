"""What becomes of a message before and after its task: read as data, put back for somebody newer, tried again."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from celery import Celery, Task
from celery.exceptions import InvalidTaskError, TaskPredicate
from celery.utils.time import get_exponential_backoff_interval
from celery.worker.strategy import default
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from producer.broker.queue import LOCATION
from producer.common.errors import Elsewhere, Newer, Reason, Refused
from producer.common.redaction import masked
from producer.common.settings import Settings
from producer.model import codec as versions
from tasks.messaging.lease import HeldByAnother
from tasks.messaging.patience import HEADER, Failing, Patience
from tasks.messaging.redacted_task import DiscreetTask
from tasks.messaging.task_states import RETRY_STATE, Unfinished, Unsuccessful

log = logging.getLogger(__name__)

#: Seconds after which a message that is not for this worker now is given out again, and the most between two tries of
#: others. Drawn, since Redis serves who has waited longest: at the same beat it would be the same worker each time.
_PUT_BACK: Final = (2.0, 7.0)
_LONGEST_PAUSE: Final = 30

#: Refusals that stay the same whoever tries again, and however often.
_FINAL: Final = frozenset({Reason.MESSAGE, Reason.UNKNOWN_JOB, Reason.UNKNOWN_TABLE, Reason.USAGE})


class Delivered(DiscreetTask):
    """A task whose message is read before it runs; it is given what the message asks for.

    * What is newer than this process, the message or a record, goes back to the queue for as long as it takes; so does
      a unit that another worker is at. Neither counts as a try.
    * A job or a unit that ended badly ends its task as FAILURE, with its sentence; it is not tried again.
    * A message that is not understood is refused with a sentence, and is gone.
    * Anything else that goes wrong is tried again as long as its patience lasts (:mod:`tasks.messaging.patience`), and
      ends the job, or the unit, then.
    """

    abstract = True
    typing = False  # a message of a later version goes back as it came
    max_retries = None
    throws = (Refused, Elsewhere, Unsuccessful)
    Strategy = "tasks.messaging.delivery:strategy"
    #: Makes what is asked for of a message's arguments, or refuses them.
    reads: Callable[[Mapping[str, Any]], Any]
    patience: Patience
    #: Ends what the message is about, given the task, what it asks for and the last error; returns the result.
    ends: Callable[[Task, Any, BaseException], str]

    def work(self, *arguments: Any, **named: Any) -> Any:
        """Read the message, run the task, and send the events of an end that is no success."""
        try:
            return self._deliver(arguments, named)
        except Unfinished as end:
            log.info("%s: %s", self.request.id, end)
            for event in end.events:
                self.send_event(event, **end.told)
            raise
        except Unsuccessful as error:
            log.warning("%s: %s", self.request.id, error)
            # The list of tasks in Flower shows results; that of a failed task would be empty.
            self.send_event("task-progress", result=masked(str(error)))
            raise

    def _deliver(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        order = None
        try:
            versions.check_message(_headers(self).get(versions.HEADER))
            if arguments:
                raise Refused(Reason.MESSAGE, "The message is not understood: its arguments have no names.")
            order = self.reads(named)
            return self.run(order)
        except (TaskPredicate, Unsuccessful):
            raise
        except (Newer, HeldByAnother) as error:
            level = logging.WARNING if isinstance(error, Newer) else logging.INFO
            log.log(level, "%s goes back to the queue: %s", self.request.id, error)
            raise self._put_back(error) from error
        except Refused as error:
            if error.reason not in _FINAL:
                return self._again(order, error)
            log.warning("%s is refused: %s", self.name, error)
            raise
        except Elsewhere as error:  # what leads out of a table does so for ever
            log.warning("%s is refused: %s", self.name, error)
            raise
        except Exception as error:
            return self._again(order, error)

    def _put_back(self, error: Exception) -> Exception:
        """Have the message given out again later; that does not count as a try."""
        self.request.retries -= 1
        later: Exception = self.retry(exc=error, countdown=random.uniform(*_PUT_BACK), throw=False)
        return later

    def _again(self, order: Any, error: Exception) -> str:
        """Have the message tried again, or end what it is about."""
        now = time.time()
        failing = Failing.after(_headers(self), error, now)
        if self.patience.ends(failing, now):
            log.warning("%s is not tried again", self.request.id, exc_info=error)
            if order is None:  # nobody knows what it was about
                raise error
            return type(self).ends(self, order, error)
        pause = get_exponential_backoff_interval(1, self.request.retries, _LONGEST_PAUSE, full_jitter=True)
        headers = {**_headers(self), HEADER: failing.model_dump()}
        raise self.retry(exc=error, countdown=pause, throw=False, headers=headers) from error


class Envelope(BaseModel):
    """What Celery makes use of in a message's headers."""

    model_config = ConfigDict(strict=True, extra="ignore")

    id: str = Field(min_length=1)
    task: str
    retries: int = Field(0, ge=0)
    eta: str | None = None
    expires: str | None = None
    timelimit: list[float | None] | None = Field(None, min_length=2, max_length=2)
    root_id: str | None = None
    parent_id: str | None = None
    group: str | None = None
    shadow: str | None = None


def strategy(task: Task, app: Celery, consumer: Any, **options: Any) -> Callable[..., Any]:
    """How a worker takes messages of a task: as Celery does, except that no message can end the worker.

    Celery takes a message's form on trust: one of another form would end each worker in turn, for none acknowledges it.
    """
    take = default(task, app, consumer, **options)

    def taken(message: Any, body: Any, *rest: Any, **named: Any) -> Any:
        if body is not None or not _is_envelope(message.payload):
            raise InvalidTaskError("its body is not a list of arguments, named arguments and options")
        try:
            Envelope.model_validate(message.headers)
        except ValidationError as error:
            raise InvalidTaskError(f"its headers are not those of a task: {versions.complaint(error)}") from error
        result = take(message, body, *rest, **named)
        if message.headers.get("eta") and consumer.event_dispatcher:
            # It is tried again later, and that is how it is shown until then: not as one that has just come.
            consumer.event_dispatcher.send(RETRY_STATE, uuid=message.headers["id"])
        return result

    return taken


def _is_envelope(payload: Any) -> bool:
    if not isinstance(payload, list | tuple) or len(payload) != 3:
        return False
    unnamed, named, options = payload
    # Options have a task send others when it is done: nobody here does that.
    plain = options is None or (isinstance(options, dict) and not any(options.values()))
    return isinstance(unnamed, list | tuple) and isinstance(named, dict) and plain


def location_of(task: Task) -> str | None:
    """Where the records of a message's job lie, if it says so."""
    location = _headers(task).get(LOCATION)
    if location is not None and not isinstance(location, str):
        raise Refused(Reason.MESSAGE, "The message is not understood: its location is no text.")
    return location


def _headers(task: Task) -> Mapping[str, Any]:
    return task.request.headers or {}


def delivery(settings: Settings) -> Mapping[str, Any]:
    """Options of a task whose messages are delivered so."""
    return {"base": Delivered, "bind": True, "patience": Patience.of(settings)}
