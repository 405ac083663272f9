"""The message queue: tasks and queues, the arguments of messages, sending, and which tasks the broker still holds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic import Field, ValidationError

from producer.broker.connections import connection_error, is_redis, redis_at, sender_to
from producer.common.errors import Reason, Refused
from producer.model.codec import HEADER, SCHEMA, first_problem
from producer.model.job import JobId, Operation, Request, Value
from producer.model.plan import Plan

if TYPE_CHECKING:
    import redis

    from producer.common.settings import Settings

V = TypeVar("V", bound=Value)

PLAN: Final = "icefleet.plan"
COMMIT: Final = "icefleet.commit"
SWEEP: Final = "icefleet.sweep"
#: The task that stages a unit of each operation.
STAGING: Final = {operation: f"icefleet.{operation}" for operation in Operation}
#: The queue of each task. Each task has a queue of its own, so that during an upgrade no worker receives a task that it
#: does not know. A worker that serves several queues takes messages from the first of them first: jobs that have begun
#: are finished before others begin, so that they end early, and a plan is committed while the table is still as it was
#: planned.
QUEUES: Final = {COMMIT: "commit", **{task: str(op) for op, task in STAGING.items()}, PLAN: "plan", SWEEP: "sweep"}
#: The message header that holds the table's location.
LOCATION: Final = "icefleet-location"

#: The hash in which Celery's Redis transport keeps delivered messages, by delivery tag.
_UNACKNOWLEDGED: Final = "unacked"
_PAGE: Final = 1000  # messages read at a time


class Messenger:
    """Sends tasks by name. Arguments are small and readable, and the same each time that a message is sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check(self) -> None:
        """Check that the broker answers.

        Raises:
            Refused: It does not answer, or a package that it needs is missing; the sentence names the likely cause.
        """
        url = self._settings.broker_url
        try:
            from kombu.exceptions import OperationalError
            from redis.exceptions import RedisError

            sender_to(url).ping()
        except ImportError as error:  # alone: the other errors may be of a package that is missing
            raise connection_error(url, error) from error
        except (OSError, OperationalError, RedisError, KeyError) as error:  # KeyError: an unknown scheme
            raise connection_error(url, error) from error

    def plan(self, request: Request) -> None:
        """Send the task that plans or resumes a job."""
        arguments = request.model_dump(mode="json", exclude={"operation", "catalog"}, exclude_defaults=True)
        self._send(PLAN, arguments, plan_id(request.job))

    def stage(self, plan: Plan, units: Iterable[int]) -> None:
        """Send the tasks that stage units, to the queue of their operation."""
        labels = {unit.number: unit.label for unit in plan.units}
        for unit in units:
            request = {"table": plan.request.table, "partition": labels[unit], "job": plan.request.job}
            arguments = {**request, "round": plan.round, "unit": unit}
            self._send(STAGING[plan.request.operation], arguments, unit_id(plan, unit), plan.location)

    def commit(self, job: str, location: str) -> None:
        """Send the task that commits a round once all of its units are staged."""
        self._send(COMMIT, {"table": JobId.parse(job).table, "job": job}, f"commit:{job}", location)

    def _send(self, name: str, arguments: dict[str, object], task_id: str, location: str | None = None) -> None:
        headers: dict[str, object] = {HEADER: SCHEMA}
        if location:  # with it the job's records are found even after the table was dropped
            headers[LOCATION] = location
        sender = sender_to(self._settings.broker_url)
        sender.send(name, kwargs=arguments, task_id=task_id, queue=QUEUES[name], headers=headers)


class QueueInspector:
    """Reads once which tasks the broker holds: messages that wait, and delivered ones that are not acknowledged.

    Redis loses messages silently: in a power cut, when a worker dies between taking a message and recording that, or
    when it is full. A task that is in none of these places is lost.
    """

    def __init__(self, settings: Settings) -> None:
        self._url = settings.broker_url

    @cached_property
    def task_ids(self) -> frozenset[str] | None:
        """Ids of all tasks that wait or are worked on; None for brokers other than Redis, which are not inspected.

        A task that ends while the queues are read may be among them. No task is missing that was there all the time.
        """
        if not is_redis(self._url):
            return None
        broker = redis_at(self._url)
        delivered = set(_delivered(broker))
        waiting = {task_id for queue in QUEUES.values() for task_id in _waiting(broker, queue)}
        # Once more: a message that left its queue in between is here now.
        return frozenset(delivered | waiting | set(_delivered(broker)))

    def is_lost(self, task_id: str) -> bool:
        """Whether the broker does not hold a task; False where the broker is not inspected."""
        return self.task_ids is not None and task_id not in self.task_ids


def plan_id(job: str) -> str:
    """Return the id of the task that plans a job."""
    return f"plan:{job}"


def unit_id(plan: Plan, unit: int) -> str:
    """Return the id of the task that stages a unit."""
    return f"{plan.request.operation}:{plan.request.job}:{plan.round}:{unit}"


def job_of_unit(task_id: str) -> str:
    """Return the job whose unit the task of this id stages."""
    return task_id.partition(":")[2].rsplit(":", 2)[0]


def _waiting(broker: redis.Redis, queue: str) -> Iterator[str]:
    """Read a queue from the end where messages arrive: messages taken at the other end then move none of the rest."""
    for start in itertools.count(step=_PAGE):
        texts = cast("list[str]", broker.lrange(queue, start, start + _PAGE - 1))
        yield from _task_ids(json.loads(text) for text in texts)
        if not texts:
            return


def _delivered(broker: redis.Redis) -> Iterator[str]:
    yield from _task_ids(json.loads(text)[0] for _, text in broker.hscan_iter(_UNACKNOWLEDGED, count=_PAGE))


def _task_ids(messages: Iterable[dict[str, dict[str, str]]]) -> Iterator[str]:
    return (message["headers"]["id"] for message in messages)


class CommitMessage(Value):
    """A message that asks for a round to be committed once all of its units are staged."""

    table: str
    job: str


class UnitMessage(Value):
    """A message that asks for one unit to be staged."""

    table: str
    job: str
    #: The unit's label, for people who look at the queue.
    partition: str
    round: int = Field(ge=0)
    unit: int = Field(ge=0)


def parse_plan_message(arguments: Mapping[str, Any]) -> Request:
    """Return the request that a plan message carries.

    Raises:
        Refused: The arguments are not a request.
    """
    name = _job_id(arguments)
    if repeated := arguments.keys() & {"operation", "catalog"}:
        raise _refused(f"{min(repeated)} follows from the job's id")
    return _parse(Request, {"operation": name.operation, "catalog": name.catalog, **arguments})


def parse_message(kind: type[V], arguments: Mapping[str, Any]) -> V:
    """Return any other message as a value of its class.

    Raises:
        Refused: The arguments do not fit the class.
    """
    _job_id(arguments)
    return _parse(kind, dict(arguments))


def _parse(kind: type[V], arguments: dict[str, Any]) -> V:
    try:
        return kind.model_validate(arguments, strict=True)  # text does not count as a number
    except ValidationError as error:
        raise _refused(first_problem(error)) from error


def _job_id(arguments: Mapping[str, Any]) -> JobId:
    job, table = arguments.get("job"), arguments.get("table")
    if not isinstance(job, str):
        raise _refused(f"its job is {job!r:.80}")
    name = JobId.parse(job)
    if name.table != table:
        raise _refused(f"its table is {table!r:.80}, its job's {name.table!r}")
    return name


def _refused(why: str) -> Refused:
    return Refused(Reason.MESSAGE, f"The message is not understood: {why}.")
