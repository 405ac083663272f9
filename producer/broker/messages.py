"""The arguments of messages as value objects: a message can ask for nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from producer.common.errors import Reason, Refused
from producer.model.codec import first_problem
from producer.model.job import JobId, Request, Value


class JobMessage(Value):
    """A message about a planned job. Validation is strict: text does not count as a number."""

    model_config = ConfigDict(strict=True)

    table: str
    job: str


class UnitMessage(JobMessage):
    """A message that asks for one unit to be staged."""

    #: The unit's label, for people who look at the queue.
    partition: str
    round: int = Field(ge=0)
    unit: int = Field(ge=0)


class CommitMessage(JobMessage):
    """A message that asks for a round to be committed once all of its units are staged."""


M = TypeVar("M", bound=JobMessage)


def parse_plan_message(arguments: Mapping[str, Any]) -> Request:
    """Return the request that a plan message carries.

    Raises:
        Refused: The arguments are not a request.
    """
    name = _job_id(arguments.get("job"), arguments.get("table"))
    if repeated := arguments.keys() & {"operation", "catalog"}:
        raise _refused(f"{min(repeated)} follows from the job's id")
    try:
        request = {"operation": name.operation, "catalog": name.catalog, **arguments}
        return Request.model_validate(request, strict=True)
    except ValidationError as error:
        raise _refused(first_problem(error)) from error


def parse_message(kind: type[M], arguments: Mapping[str, Any]) -> M:
    """Return any other message as a value of its class.

    Raises:
        Refused: The arguments do not fit the class.
    """
    _job_id(arguments.get("job"), arguments.get("table"))
    try:
        return kind.model_validate(dict(arguments))
    except ValidationError as error:
        raise _refused(first_problem(error)) from error


def _job_id(job: Any, table: Any) -> JobId:
    if not isinstance(job, str):
        raise _refused(f"its job is {job!r:.80}")
    name = JobId.parse(job)
    if name.table != table:
        raise _refused(f"its table is {table!r:.80}, its job's {name.table!r}")
    return name


def _refused(why: str) -> Refused:
    return Refused(Reason.MESSAGE, f"The message is not understood: {why}.")
