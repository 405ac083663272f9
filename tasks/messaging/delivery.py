"""Delivery of messages: parsed as data before the task runs; put back, retried or refused afterwards."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from celery import Celery, Task
from celery.exceptions import InvalidTaskError, TaskPredicate
from celery.utils.time import get_exponential_backoff_interval
from celery.worker.strategy import default
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.exceptions import RedisError

from producer.broker.queue import LOCATION
from producer.broker.registry import JobRegistry
from producer.common.errors import Newer, OutsideTable, Reason, Refused
from producer.common.redaction import redact
from producer.model import codec as versions
from producer.model.job import StorageRequests
from producer.storage.requests import COUNTS
from tasks.messaging.base_task import RETRY_EVENT, RedactedTask, Unfinished, Unsuccessful
from tasks.messaging.lease import HeldByAnother
from tasks.messaging.retry_policy import HEADER, FailureCount, RetryPolicy, reason_of

log = logging.getLogger(__name__)

#: The range of seconds after which a message that this worker cannot handle now is delivered again. Random, since
#: Redis serves the worker that has waited longest: with a constant it would be the same worker each time.
_PUT_BACK_SECONDS: Final = (2.0, 7.0)
#: The most seconds between two attempts at a message that failed.
_MAX_RETRY_SECONDS: Final = 30

#: Refusals that no retry changes.
_FINAL_REASONS: Final = frozenset({Reason.MESSAGE, Reason.UNKNOWN_JOB, Reason.UNKNOWN_TABLE, Reason.USAGE})


class DeliveredTask(RedactedTask):
    """A task whose message is parsed before it runs.

    * A message or a record that is newer than this process goes back to the queue, as often as needed; so does a unit
      that another worker holds. Neither counts as an attempt.
    * A job or a unit that failed ends its task as FAILURE, and is not retried.
    * A message that is not understood is refused, and dropped.
    * Any other error is retried as the policy allows (:mod:`tasks.messaging.retry_policy`), and then aborts the job or
      the unit.
    """

    abstract = True
    typing = False  # a message of a later version goes back as it came
    max_retries = None
    throws = (Refused, OutsideTable, Unsuccessful)
    Strategy = "tasks.messaging.delivery:strategy"
    #: Parses a message's arguments, or refuses them.
    parse: Callable[[Mapping[str, Any]], Any]
    retry_policy: RetryPolicy
    registry: JobRegistry
    #: Ends the job or the unit of an order, given the task, the order and the last error; returns the task's result.
    abort: Callable[[Task, Any, BaseException], str]

    def work(self, *arguments: Any, **named: Any) -> Any:
        """Read the message, run the task, and send the events of any end but a success."""
        try:
            return self._deliver(arguments, named)
        except Unfinished as end:
            log.info("%s: %s", self.request.id, end)
            fields = {"result": redact(str(end))} if end.has_result else {}
            for event in end.events:
                self.send_event(event, **fields)
            raise
        except Unsuccessful as error:
            log.warning("%s: %s", self.request.id, error)
            # The list of tasks in Flower shows results; that of a failed task would be empty.
            self.send_event("task-progress", result=redact(str(error)))
            raise

    def _deliver(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        order = None
        try:
            versions.check_message(_headers(self).get(versions.HEADER))
            if arguments:
                raise Refused(Reason.MESSAGE, "The message is not understood: its arguments have no names.")
            order = self.parse(named)
            COUNTS.take()  # what this process has requested before was not for the job
            try:
                return self.run(order)
            finally:
                report_requests(self.registry, order.job)
        except (TaskPredicate, Unsuccessful):
            raise
        except (Newer, HeldByAnother) as error:
            level = logging.WARNING if isinstance(error, Newer) else logging.INFO
            log.log(level, "%s goes back to the queue: %s", self.request.id, error)
            self.request.retries -= 1  # it does not count as an attempt
            raise self.retry(exc=error, countdown=random.uniform(*_PUT_BACK_SECONDS), throw=False) from error
        except Exception as error:
            # No retry changes what a message says or where a path leads.
            if isinstance(error, OutsideTable) or (isinstance(error, Refused) and error.reason in _FINAL_REASONS):
                log.warning("%s is refused: %s", self.name, error)
                raise
            return self._retry_or_abort(order, error)

    def _retry_or_abort(self, order: Any, error: Exception) -> str:
        """Have the message tried again, or end its job or unit."""
        now = time.time()
        failures = FailureCount.after(_headers(self), error, now)
        if self.retry_policy.is_exhausted(failures, now):
            log.warning("%s is not tried again", self.request.id, exc_info=error)
            if order is None:  # the job is unknown
                raise error
            return type(self).abort(self, order, error)
        if order is not None:
            with suppress(RedisError):  # it is only shown
                self.registry.save_problem(order.job, redact(f"tried again: {reason_of(error)}"))
        pause = max(1, get_exponential_backoff_interval(1, self.request.retries, _MAX_RETRY_SECONDS, full_jitter=True))
        headers = {**_headers(self), HEADER: failures.model_dump()}
        raise self.retry(exc=error, countdown=pause, throw=False, headers=headers) from error


def report_requests(registry: JobRegistry, job: str) -> StorageRequests | None:
    """Add the requests of this process to those of its job; return the ones that are new."""
    counts = COUNTS.take()
    with suppress(RedisError):  # they are only shown
        registry.add_requests(job, counts)
    return StorageRequests.of(counts)


class Envelope(BaseModel):
    """The headers of a message that Celery uses."""

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
    """Return a handler of a task's messages: Celery's own, except that no message can end the worker.

    Celery does not check a message's form: a malformed one would end each worker in turn, since none acknowledges it.
    """
    handle = default(task, app, consumer, **options)

    def handle_checked(message: Any, body: Any, *rest: Any, **named: Any) -> Any:
        if body is not None or not _is_envelope(message.payload):
            raise InvalidTaskError("its body is not a list of arguments, named arguments and options")
        try:
            Envelope.model_validate(message.headers)
        except ValidationError as error:
            raise InvalidTaskError(f"its headers are not those of a task: {versions.first_problem(error)}") from error
        result = handle(message, body, *rest, **named)
        if message.headers.get("eta") and consumer.event_dispatcher:
            # A retry that waits for its time: Flower must not show it as a new message.
            consumer.event_dispatcher.send(RETRY_EVENT, uuid=message.headers["id"])
        return result

    return handle_checked


def _is_envelope(payload: Any) -> bool:
    if not isinstance(payload, list | tuple) or len(payload) != 3:
        return False
    unnamed, named, options = payload
    # Options make a task send others when it is done: the fleet uses none.
    plain = options is None or (isinstance(options, dict) and not any(options.values()))
    return isinstance(unnamed, list | tuple) and isinstance(named, dict) and plain


def location_of(task: Task) -> str | None:
    """Return the table location of a message's job, or None if the message names none."""
    location = _headers(task).get(LOCATION)
    if location is not None and not isinstance(location, str):
        raise Refused(Reason.MESSAGE, "The message is not understood: its location is no text.")
    return location


def _headers(task: Task) -> Mapping[str, Any]:
    return task.request.headers or {}
