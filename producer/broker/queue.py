"""Sends tasks by name: what a producer and the tasks themselves say to the workers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from producer.broker.connections import sender_to
from producer.common.broker_address import unanswered
from producer.model import codec as versions
from producer.model.job import JobId, Operation, Request
from producer.model.plan import Plan

if TYPE_CHECKING:
    from producer.common.settings import Settings

#: Task names, and the queue that each goes to: one for each, so that no worker is sent a task that it does not know
#: while a fleet is upgraded. Who serves several takes what comes first here first: what was begun is
#: brought to its end before more is begun, so that of many jobs the first ends early, and a plan is committed while the
#: table is still as it was planned.
PLAN, COMMIT, SWEEP = "icefleet.plan", "icefleet.commit", "icefleet.sweep"
CONVERT, COMPACT = "icefleet.convert", "icefleet.compact"
LOCATION = "icefleet-location"
QUEUES = {COMMIT: "commit", CONVERT: "convert", COMPACT: "compact", PLAN: "plan", SWEEP: "sweep"}
#: The task that stages a unit of each kind of work.
STAGING = {Operation.CONVERT: CONVERT, Operation.COMPACT: COMPACT}


class Messenger:
    """Puts messages on the broker. Arguments are small, readable, and the same however often a message is sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def check(self) -> None:
        """Refuse with the likely cause when the broker does not answer."""
        from kombu.exceptions import OperationalError
        from redis.exceptions import RedisError

        url = self._settings.broker_url
        try:
            sender_to(url).ping()
        except (OSError, OperationalError, RedisError, KeyError) as error:  # KeyError: an unknown scheme
            raise unanswered(url, error) from error

    def plan(self, request: Request) -> None:
        """Have a job planned, or taken up again."""
        arguments = request.model_dump(mode="json", exclude={"operation", "catalog"}, exclude_defaults=True)
        self._send(PLAN, arguments, plan_id(request.job))

    def stage(self, plan: Plan, units: Iterable[int]) -> None:
        """Have units staged, by whoever serves the queue of their operation."""
        operation = plan.request.operation
        labels = {unit.number: unit.label for unit in plan.units}
        for unit in units:
            arguments = {
                "table": plan.request.table,
                "partition": labels[unit],
                "job": plan.request.job,
                "round": plan.round,
                "unit": unit,
            }
            self._send(STAGING[operation], arguments, unit_id(plan, unit), plan.location)

    def commit(self, job: str, location: str) -> None:
        """Have what is staged committed, once all of it is."""
        self._send(COMMIT, {"table": JobId.parse(job).table, "job": job}, f"commit:{job}", location)

    def _send(self, name: str, arguments: dict[str, object], task_id: str, location: str | None = None) -> None:
        headers: dict[str, object] = {versions.HEADER: versions.SCHEMA}
        if location:  # goes along unseen: with it the records are found even after the table was dropped
            headers[LOCATION] = location
        sender_to(self._settings.broker_url).send(
            name, kwargs=arguments, task_id=task_id, queue=QUEUES[name], headers=headers
        )


def plan_id(job: str) -> str:
    """The id of the task that plans a job."""
    return f"plan:{job}"


def unit_id(plan: Plan, unit: int) -> str:
    """The id of the task that stages a unit."""
    return f"{plan.request.operation}:{plan.request.job}:{plan.round}:{unit}"


def job_of_unit(task_id: str) -> str:
    """The job of the unit that a task of this id stages."""
    return task_id.partition(":")[2].rsplit(":", 2)[0]
